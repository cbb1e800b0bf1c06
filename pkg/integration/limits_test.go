// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// mustBeInvalid fails unless an error is a 422 that names a field.
func mustBeInvalid(t *testing.T, what string, err error, field string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field+": ") {
		t.Errorf("%s: want a 422 about %s, got %v", what, field, err)
	}
}

// annotated is a claim on a set, with annotations for its sandboxes.
func annotated(set *v1alpha1.SandboxSet, name string, replicas int32, bytes int) *v1alpha1.SandboxClaim {
	return testutil.Claim(set, name, replicas, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Annotations = map[string]string{"example.com/note": strings.Repeat("x", bytes)}
	})
}

// used is how large the store is, and the memory of the process, in bytes.
func used(t *testing.T, s *testutil.Server) (store, memory int64) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	status, err := client.Status(t.Context(), s.EtcdServers[0])
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return status.DbSize, int64(stats.HeapAlloc)
}

// TestLargeClaimsAreRefused: what one request of 261 KB put on 400 sandboxes, twice
// each, were 200 MB. It runs alone, for it looks at the memory of the process.
func TestLargeClaimsAreRefused(t *testing.T) {
	s := testutil.Start(t, withSyncWindow(time.Millisecond))
	set := s.Set(t, namespace, "pool", 0)
	small := annotated(set, "small", 3, 4000)
	if _, err := s.CreateOnce(t.Context(), namespace, small); err != nil {
		t.Fatal(err)
	}
	storeBefore, memoryBefore := used(t, s)
	for i := range 5 {
		name := fmt.Sprintf("large-%d", i)
		_, err := s.CreateOnce(t.Context(), namespace, annotated(set, name, 400, 255<<10))
		mustBeInvalid(t, "large annotations", err, "spec.annotations")
		_, err = s.CreateOnce(t.Context(), namespace, annotated(set, name, 10000, 8000))
		mustBeInvalid(t, "many copies", err, "spec.replicas")
		many := testutil.Claim(set, name, 1, nil)
		many.Annotations = map[string]string{"example.com/note": strings.Repeat("x", 200<<10)}
		_, err = s.CreateOnce(t.Context(), namespace, many)
		mustBeInvalid(t, "large annotations of its own", err, "metadata.annotations")
		// Apply comes another way, and so does a dry run.
		_, err = claims(s).Patch(t.Context(), name, types.ApplyPatchType,
			fmt.Appendf(nil, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":%q},"spec":{"templateName":"pool","replicas":400,"annotations":{"a":%q}}}`,
				name, strings.Repeat("x", 255<<10)), metav1.PatchOptions{FieldManager: "test"})
		mustBeInvalid(t, "apply", err, "spec.annotations")
		_, err = s.CreateOnce(t.Context(), namespace, annotated(set, name, 400, 255<<10), metav1.DryRunAll)
		mustBeInvalid(t, "dry run", err, "spec.annotations")
	}
	store, memory := used(t, s)
	if grown := store - storeBefore; grown > 8<<20 {
		t.Errorf("the store has grown by %d KiB", grown>>10)
	}
	if grown := memory - memoryBefore; grown > 64<<20 {
		t.Errorf("the process has grown by %d KiB", grown>>10)
	}
	all, err := sandboxes(s).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 3 {
		t.Errorf("there are %d sandboxes, want the 3 of the small claim: %v", len(all.Items), err)
	}
}

// withFlags sets the limits of claims as the command line does.
func withFlags(t *testing.T, flags ...string) testutil.Option {
	t.Helper()
	return testutil.WithOptions(func(o *options.Options) {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(flags); err != nil {
			t.Error(err)
		}
	})
}

// TestTimesAreBounded by flags, and claims from before keep theirs.
func TestTimesAreBounded(t *testing.T) {
	s, set := stocked(t, 4)
	long := testutil.Claim(set, "long", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.ClaimTimeout, c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 24 * time.Hour}, &metav1.Duration{Duration: time.Hour}
	})
	create(t, s, long)
	longer := testutil.Claim(set, "longer", 1, timeout(24*time.Hour+time.Second))
	_, err := s.CreateOnce(t.Context(), namespace, longer)
	mustBeInvalid(t, "by default", err, "spec.claimTimeout")

	strict := testutil.Start(t, testutil.WithEtcd(s.EtcdServers), withFlags(t, "--max-claim-timeout=1m", "--max-wait-ready-timeout=30s"))
	create(t, strict, testutil.Claim(set, "defaults", 1, nil))
	again := long.DeepCopy()
	again.Name = "again"
	_, err = strict.CreateOnce(t.Context(), namespace, again)
	mustBeInvalid(t, "by flag", err, "spec.claimTimeout")
	mustBeInvalid(t, "by flag", err, "spec.waitReadyTimeout")
	patch := func(data string) error {
		_, err := claims(strict).Patch(t.Context(), "long", types.MergePatchType, []byte(data), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"metadata":{"labels":{"a":"b"}},"spec":{"ttlAfterCompleted":"5h"}}`); err != nil {
		t.Errorf("a claim from before cannot be changed otherwise: %v", err)
	}
	mustBeInvalid(t, "an update", patch(`{"spec":{"claimTimeout":"25h"}}`), "spec.claimTimeout")
	checkInvariants(t, s)
}

// TestFreshSandboxesAreBounded: a claim has some made, and waits for the rest.
func TestFreshSandboxesAreBounded(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond), withFlags(t, "--max-fresh-sandboxes=2"))
	create(t, s, testutil.Claim(set, "cold", 4, timeout(expect.Patience)))
	for i, sb := range freshOf(t, s, 3) {
		if sb.Annotations[v1alpha1.AnnotationSandboxPriority] != "" {
			setStatus(t, s, &sb, testutil.ReadyStatus(100+i, time.Now()))
		}
	}
	s.AwaitClaim(t, namespace, "cold", func(c *v1alpha1.SandboxClaim) string {
		if c.Status.ClaimedReplicas != 3 || !strings.Contains(c.Status.Message, "one claim may hold 2 at a time (maxFreshSandboxes)") {
			return "does not tell what it waits for"
		}
		return ""
	})
	s.Stock(t, set, 50, 1)
	if ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed); ended.Status.ClaimedReplicas != 4 || isTrue(ended, v1alpha1.ClaimConditionTimedOut) {
		t.Errorf("ends with %q", ended.Status.Message)
	}
	_, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "none", 3, func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = v1alpha1.WarmPoolNone }))
	mustBeInvalid(t, "fresh ones only", err, "spec.replicas")
	checkInvariants(t, s)
}

// TestSetsSayHowManyFreshOnes, also more than the server, and a claim that waits hears
// of it.
func TestSetsSayHowManyFreshOnes(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond), withFlags(t, "--max-fresh-sandboxes=1"))
	create(t, s, testutil.Claim(set, "cold", 3, timeout(expect.Patience)))
	freshOf(t, s, 1)
	if _, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Patch(t.Context(), set.Name, types.MergePatchType,
		[]byte(`{"spec":{"maxFreshSandboxes":3}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, sb := range freshOf(t, s, 3) {
		setStatus(t, s, &sb, testutil.ReadyStatus(i, time.Now()))
	}
	s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	checkInvariants(t, s)
}

// TestNamesOfFreshSandboxes: the name of the set, and 12 letters and digits. What users
// name by generateName is named as everywhere.
func TestNamesOfFreshSandboxes(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "cold", 5, timeout(expect.Patience)))
	for _, sb := range freshOf(t, s, 5) {
		random, found := strings.CutPrefix(sb.Name, set.Name+"-")
		if !found || len(random) != 12 || strings.ContainsAny(random, "-.") {
			t.Errorf("a fresh sandbox of %s is called %q", set.Name, sb.Name)
		}
	}
	mine := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{GenerateName: "mine-"}}
	mine.Spec.Template = testutil.AvailableSandbox(set, 1).Spec.Template
	mine, err := sandboxes(s).Create(t.Context(), mine, metav1.CreateOptions{})
	if err != nil || len(mine.Name) != len("mine-")+5 {
		t.Errorf("a sandbox by generateName is called %q, %v", mine.Name, err)
	}
}

// TestElementsOfObjects: objects get too many keys and items neither by several patches nor by one
// that copies, one that has many can be patched, and a long status that a PUT contains does not
// count, and is not stored.
func TestElementsOfObjects(t *testing.T) {
	s := start(t)
	set := s.Set(t, namespace, "pool", 0)
	sets := s.Client.AgentsV1alpha1().SandboxSets(namespace)
	patch := func(kind types.PatchType, data string, subresources ...string) error {
		_, err := sets.Patch(t.Context(), set.Name, kind, []byte(data), metav1.PatchOptions{}, subresources...)
		return err
	}
	annotations := func(prefix string) string {
		texts := make([]string, 9000)
		for i := range texts {
			texts[i] = fmt.Sprintf(`"%s%d":""`, prefix, i)
		}
		return `{"metadata":{"annotations":{` + strings.Join(texts, ",") + `}}}`
	}
	var err error
	for n := 0; err == nil && n < 5; n++ {
		err = patch(types.MergePatchType, annotations(fmt.Sprint("a", n)))
	}
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "keys and items of lists") {
		t.Errorf("several patches: %.300v", err)
	}
	if err := patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/a"]}}`); err != nil {
		t.Errorf("a patch of metadata: %.300v", err)
	}
	if err := patch(types.MergePatchType, `{"status":{"replicas":0,"observedGeneration":1}}`, "status"); err != nil {
		t.Errorf("a patch of the status: %.300v", err)
	}
	if err := patch(types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers"}]`); err != nil {
		t.Errorf("a patch of finalizers: %.300v", err)
	}
	err = patch(types.JSONPatchType, `[{"op":"add","path":"/spec/volumeClaimTemplates","value":[[]]}`+
		strings.Repeat(`,{"op":"copy","from":"/spec/volumeClaimTemplates","path":"/spec/volumeClaimTemplates/-"}`, 16)+`]`)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "keys and items of lists") {
		t.Errorf("a patch that copies: %.300v", err)
	}

	claim, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "mine", 1, nil))
	if err != nil {
		t.Fatal(err)
	}
	long := claim.DeepCopy()
	long.Labels = map[string]string{"edited": "true"}
	for i := range 20_000 {
		long.Status.Sandboxes = append(long.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: fmt.Sprint("forged-", i), PodIPs: []string{"1.1.1.1", "1::1"}})
	}
	updated, err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Update(t.Context(), long, metav1.UpdateOptions{})
	if err != nil || updated.Labels["edited"] != "true" || len(updated.Status.Sandboxes) != len(claim.Status.Sandboxes) {
		t.Errorf("an update with a long status: %.300v, labels %v, %d sandboxes", err, updated.Labels, len(updated.Status.Sandboxes))
	}
}
