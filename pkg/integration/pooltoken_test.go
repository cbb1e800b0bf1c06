// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	rules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// runtimePool makes a set of which the pod template, that its sandboxes refer to, brings an
// agent-runtime.
func runtimePool(t *testing.T, s *testutil.Server) *v1alpha1.SandboxSet {
	t.Helper()
	template := builders.Template("with-runtime")
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"spec":{"initContainers":[{"name":"runtime","image":"runtime"}],"containers":[{"name":"main","image":"busybox"}]}}`)}
	template, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.SetOf(t, template, "warm", "", 1)
}

// born makes the i-th sandbox of a pool, as a controller does. Its pod is not there yet.
func born(t *testing.T, s *testutil.Server, set *v1alpha1.SandboxSet, i int) *v1alpha1.Sandbox {
	t.Helper()
	sb := testutil.AvailableSandbox(set, i)
	sb.UID, sb.CreationTimestamp, sb.Status = "", metav1.Time{}, v1alpha1.SandboxStatus{}
	sb, err := sandboxes(s).Create(t.Context(), sb, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// becomesReady says that the pod of a sandbox is ready, with a runtime.
func becomesReady(t *testing.T, s *testutil.Server, name string, rt *runtimetest.Runtime) {
	t.Helper()
	sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := *sb.Status.DeepCopy()
	status.Phase, status.PodInfo.PodIP, status.SandboxIP = v1alpha1.SandboxRunning, rt.IP, rt.IP
	ready(&status, metav1.ConditionTrue)
	setStatus(t, s, sb, status)
}

func ready(status *v1alpha1.SandboxStatus, value metav1.ConditionStatus) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.SandboxConditionReady, Status: value, Reason: v1alpha1.ReasonPodReady})
}

// initializedIn returns what a sandbox says of its agent-runtime when there is nothing to do.
func initializedIn(t *testing.T, s *testutil.Server, name string) (*v1alpha1.Sandbox, *metav1.Condition) {
	t.Helper()
	var sb *v1alpha1.Sandbox
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		if sb, err = sandboxes(s).Get(ctx, name, metav1.GetOptions{}); err == nil && rules.SetupPending(&sb.Status) {
			err = fmt.Errorf("%s is not set up: %+v", name, sb.Status.Conditions)
		}
		return err
	})
	return sb, meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
}

// warm returns the runtime of the i-th sandbox of a pool, which has its token.
func warm(t *testing.T, s *testutil.Server, set *v1alpha1.SandboxSet, fleet *runtimetest.Fleet, i int) (*v1alpha1.Sandbox, *runtimetest.Runtime) {
	t.Helper()
	sb, rt := born(t, s, set, i), fleet.Next()
	becomesReady(t, s, sb.Name, rt)
	sb, c := initializedIn(t, s, sb.Name)
	if c == nil || c.Status != metav1.ConditionTrue || sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] == "" || rt.Token() == "" {
		t.Fatalf("%s says %+v of its runtime, which has the token %q", sb.Name, c, rt.Token())
	}
	return sb, rt
}

// TestRuntimesOfPoolsHaveTokens: before a claim can get them, and the claim has the same one.
func TestRuntimesOfPoolsHaveTokens(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	second := testutil.Start(t, testutil.WithEtcd(s.EtcdServers))
	for i := range 4 { // some are the work of each server
		sb, rt := warm(t, s, set, fleet, i)
		before := rt.Token()
		if code := runtimetest.InitAsStranger(t, rt); code != http.StatusUnauthorized {
			t.Errorf("a stranger's /init is answered %d", code)
		}
		knows(t, second, set, 1)
		server := []*testutil.Server{s, second}[i%2]
		claim := create(t, server, testutil.Claim(set, fmt.Sprintf("c%d", i), 1, asks))
		isSetUp(t, fleet, claim, 1)
		if rt.Token() != before || claim.Status.Sandboxes[0].Name != sb.Name {
			t.Errorf("claim %s has %v, the token was %s and is %s", claim.Name, claim.Status.Sandboxes, before, rt.Token())
		}
		told, err := claims(second).RuntimeAccess(t.Context(), claim.Name, &v1alpha1.SandboxClaimRuntimeAccess{}, metav1.CreateOptions{})
		if err != nil || told.Status.Sandboxes[0].AccessToken != before {
			t.Errorf("told %+v, %v", told, err)
		}
	}
	checkInvariants(t, s)
}

// TestPoolTokenOfAClaimThatSkipsTheSetup is returned in every way.
func TestPoolTokenOfAClaimThatSkipsTheSetup(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	sb, rt := warm(t, s, set, fleet, 0)
	knows(t, s, set, 1)
	answer := post(t, s, "", claimsPath+"?runtimeAccess=true", testutil.Claim(set, "mine", 1, func(c *v1alpha1.SandboxClaim) { c.Spec.SkipInitRuntime = true }))
	if answer.code != http.StatusCreated || answer.tokens[sb.Name] != rt.Token() || rt.Inits() != 1 {
		t.Errorf("answered %+v after %d calls, want the token %s", answer, rt.Inits(), rt.Token())
	}
	if told := access(t, s, v1alpha1.SandboxClaimRuntimeAccessSpec{}); told[0].AccessToken != rt.Token() {
		t.Errorf("told %+v", told)
	}
	next := fleet.Next()
	resumes(t, s, sb.Name, next)
	if c := setUpAgain(t, s, sb.Name); c == nil || c.Status != metav1.ConditionTrue || next.Token() != rt.Token() {
		t.Errorf("resumed, it says %+v and has the token %q", c, next.Token())
	}
}

// TestAPoolSandboxIsNotTakenBeforeItsToken: nor one that another caller has initialized.
func TestAPoolSandboxIsNotTakenBeforeItsToken(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	slow, poisoned, hold := fleet.Next(), fleet.Next(), make(chan struct{})
	slow.Act(runtimetest.Hang(hold), 1)
	if code := runtimetest.InitAsStranger(t, poisoned); code != http.StatusNoContent {
		t.Fatalf("the first /init is answered %d", code)
	}
	first, second := born(t, s, set, 0), born(t, s, set, 1)
	becomesReady(t, s, first.Name, slow)
	becomesReady(t, s, second.Name, poisoned)
	sb, c := initializedIn(t, s, second.Name)
	if c == nil || c.Reason != v1alpha1.ReasonFailed || sb.Status.Phase != v1alpha1.SandboxFailed || !strings.Contains(sb.Status.Message, "another caller") {
		t.Errorf("the poisoned one says %+v, and is %s: %s", c, sb.Status.Phase, sb.Status.Message)
	}
	claim, err := claims(s).Create(t.Context(), testutil.Claim(set, "early", 2, fails), metav1.CreateOptions{})
	if err == nil {
		t.Errorf("a claim got %v", claim.Status.Sandboxes)
	}
	close(hold)
	initializedIn(t, s, first.Name)
	knows(t, s, set, 1)
	claim = create(t, s, testutil.Claim(set, "later", 1, asks))
	isSetUp(t, fleet, claim, 1)
	if claim.Status.Sandboxes[0].Name != first.Name || poisoned.Env()["TOKEN"] != "" {
		t.Errorf("the claim got %v", claim.Status.Sandboxes)
	}
	checkInvariants(t, s)
}

// TestAPodThatWasUnreadyGetsItsTokenAgain: its containers may have started anew.
func TestAPodThatWasUnreadyGetsItsTokenAgain(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	sb, rt := warm(t, s, set, fleet, 0)
	before := rt.Token()
	rt.Reset()
	ready(&sb.Status, metav1.ConditionFalse)
	setStatus(t, s, sb, sb.Status)
	becomesReady(t, s, sb.Name, rt)
	if _, c := initializedIn(t, s, sb.Name); c == nil || c.Status != metav1.ConditionTrue || rt.Token() != before {
		t.Errorf("it says %+v, the token was %q and is %q", c, before, rt.Token())
	}
}

// TestAContainerThatRestartedGetsItsTokenAgain: also where no controller saw the pod unready.
func TestAContainerThatRestartedGetsItsTokenAgain(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	sb, rt := warm(t, s, set, fleet, 0)
	before := rt.Token()
	rt.Reset()
	sb.Status.PodInfo.RestartCount = new(int32(1))
	setStatus(t, s, sb, sb.Status)
	if sb, c := initializedIn(t, s, sb.Name); c == nil || c.Status != metav1.ConditionTrue || rt.Token() != before || ptr.Deref(sb.Status.PodInfo.RestartCount, 0) != 1 {
		t.Errorf("it says %+v, the token was %q and is %q", c, before, rt.Token())
	}
}

// TestPoolTokenOfAClaimThatChangesTheImage: with skipInitRuntime the restarted runtime has the
// token that is returned for the claim, and none of the variables.
func TestPoolTokenOfAClaimThatChangesTheImage(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	_, rt := warm(t, s, set, fleet, 0)
	before := rt.Token()
	knows(t, s, set, 1)
	claim := create(t, s, testutil.Claim(set, "mine", 1, func(c *v1alpha1.SandboxClaim) {
		asks(c)
		withImage("two", "")(c)
		c.Spec.SkipInitRuntime = true
	}))
	sb := resizingOf(t, s, claim, 1)[0]
	rt.Reset()
	sb.Status.PodInfo.RestartCount = new(int32(1))
	resized(t, s, &sb, "")
	s.AwaitClaim(t, namespace, "mine", testutil.Completed)
	if told := access(t, s, v1alpha1.SandboxClaimRuntimeAccessSpec{}); rt.Token() != before || told[0].AccessToken != before || len(rt.Env()) != 0 {
		t.Errorf("told %+v, the token was %q and is %q, the environment is %v", told, before, rt.Token(), rt.Env())
	}
}

// TestRecycledSandboxesGetAnotherToken: that of the former claim is worth nothing.
func TestRecycledSandboxesGetAnotherToken(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	pooled, rt := warm(t, s, set, fleet, 0)
	before := rt.Token()
	knows(t, s, set, 1)
	isSetUp(t, fleet, create(t, s, testutil.Claim(set, "first", 1, asks)), 1)

	sb, err := sandboxes(s).Get(t.Context(), pooled.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	recycle.Begin(&sb.Status, sb.Generation, time.Now())
	recycle.Clean(&sb.Status, sb.Generation, time.Now())
	setStatus(t, s, sb, sb.Status)
	if sb, err = sandboxes(s).Get(t.Context(), pooled.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	member := testutil.AvailableSandbox(set, 0)
	sb.Labels, sb.Annotations, sb.OwnerReferences, sb.Spec = member.Labels, member.Annotations, member.OwnerReferences, member.Spec
	if sb, err = sandboxes(s).Update(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != "" || !rules.SetupPending(&sb.Status) {
		t.Errorf("back in the pool it is %v, %+v", sb.Annotations, sb.Status.Conditions)
	}
	recycle.Finish(&sb.Status, &sb.Spec, sb.Generation, time.Now())
	setStatus(t, s, sb, sb.Status)
	next := fleet.Next()
	becomesReady(t, s, sb.Name, next)
	if _, c := initializedIn(t, s, sb.Name); c == nil || c.Status != metav1.ConditionTrue || next.Token() == before || next.Token() == "" {
		t.Errorf("it says %+v, the token was %q and is %q", c, before, next.Token())
	}
}

// TestNoPoolTokensBesideAnOlderServer: it would set another token for a claim.
func TestNoPoolTokensBesideAnOlderServer(t *testing.T) {
	s := start(t)
	fleet, set := runtimetest.Start(t), runtimePool(t, s)
	warm(t, s, set, fleet, 0)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	older := options.EtcdPrefix + "/" + storekeys.Servers + "/2b7c0a0e-older"
	if _, err := etcd.Put(t.Context(), older, ""); err != nil {
		t.Fatal(err)
	}
	waits := func(i int, want bool) int {
		expect.Eventually(t.Context(), t, func(context.Context) error {
			i++
			if sb := born(t, s, set, i); rules.SetupPending(&sb.Status) != want {
				return fmt.Errorf("%s says %+v", sb.Name, sb.Status.Conditions)
			}
			return nil
		})
		return i
	}
	last := waits(0, false)
	rt := fleet.Next()
	becomesReady(t, s, fmt.Sprintf("%s-%06d", set.Name, last), rt)
	knows(t, s, set, 2)
	claim := create(t, s, testutil.Claim(set, "both", 2, asks))
	isSetUp(t, fleet, claim, 2)
	if rt.Inits() != 1 {
		t.Errorf("the runtime was initialized %d times", rt.Inits())
	}
	if _, err := etcd.Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	waits(last, true)
}

// TestPoolsThatGetNoTokens: those without agent-runtimes, and those of agent-sandbox.
func TestPoolsThatGetNoTokens(t *testing.T) {
	s := start(t)
	set := runtimePool(t, s)
	sb := testutil.AvailableSandbox(set, 0)
	sb.UID, sb.Status = "", v1alpha1.SandboxStatus{}
	sb.OwnerReferences[0].APIVersion, sb.OwnerReferences[0].Kind = v1alpha1.ExtensionsGroup+"/v1beta1", v1alpha1.KindWarmPool
	sb, err := sandboxes(s).Create(t.Context(), sb, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	plain := born(t, s, s.Set(t, namespace, "plain", 1), 0)
	for _, sb := range []*v1alpha1.Sandbox{sb, plain} {
		if len(sb.Status.Conditions) != 0 {
			t.Errorf("%s says %+v", sb.Name, sb.Status.Conditions)
		}
	}
}
