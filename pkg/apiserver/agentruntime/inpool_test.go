// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/podstest"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

const (
	plainTemplate = `{"spec":{"containers":[{"name":"main"}]}}`
	withRuntime   = `{"spec":{"initContainers":[{"name":"runtime"}]}}`
	withTLS       = `{"metadata":{"annotations":{"agents.kruise.io/runtime-tls-port":"49984"}},"spec":{"initContainers":[{"name":"runtime"}]}}`
)

// pooled returns a sandbox of a pool whose pod is ready, with a runtime that has no token.
func pooled(rt *runtimetest.Runtime) *v1alpha1.Sandbox {
	sb := claimed(rt)
	sb.OwnerReferences = []metav1.OwnerReference{{APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxSet", Name: "pool", UID: "set-uid", Controller: new(true)}}
	claims.BeginPoolSetup(sb, time.Now())
	return sb
}

// now is the sandbox as it is.
func (b *box) now() *v1alpha1.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sb
}

// tokenIn is the token that a claim would set in a sandbox.
func tokenIn(t *testing.T, sb *v1alpha1.Sandbox) string {
	t.Helper()
	token, err := newKeyring(t, 1).Token(t.Context(), "claim", sb)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestARuntimeInAPoolGetsAToken: that of each claim which gets the sandbox, and of no pod before.
func TestARuntimeInAPoolGetsAToken(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	b := &box{sb: pooled(rt), template: withRuntime, fails: 1}
	b.serve(t, "a")
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue || c.Message != "" {
		t.Errorf("told %+v", c)
	}
	if state := v1alpha1.StateOf(b.now(), time.Now()); state != v1alpha1.StateAvailable {
		t.Errorf("the sandbox is %s", state)
	}
	first := rt.Token()
	if want := tokenIn(t, b.now()); first != want || first == tokenOf(t, newKeyring(t, 1), "claim", "sandbox-uid") {
		t.Errorf("the token is %q, want %q", first, want)
	}
	// A container that has started anew gets the same one, and another pod another one.
	rt.Reset()
	b.set(func(sb *v1alpha1.Sandbox) { claims.BeginPoolSetup(sb, time.Now()) })
	b.await(t, initialized)
	if rt.Token() != first {
		t.Errorf("the pod had %q, and has %q", first, rt.Token())
	}
	rt.Reset()
	b.set(func(sb *v1alpha1.Sandbox) {
		sb.Status.RecycledCount++
		delete(sb.Annotations, v1alpha1.AnnotationRuntimeTokenID)
		claims.BeginPoolSetup(sb, time.Now())
	})
	b.await(t, initialized)
	if rt.Token() == first || rt.Token() == "" {
		t.Errorf("the next pod has %q", rt.Token())
	}
}

// TestARuntimeInAPoolThatHasAToken: the sandbox has ended, so that the pool replaces it.
func TestARuntimeInAPoolThatHasAToken(t *testing.T) {
	for name, breaks := range map[string]func(*runtimetest.Runtime){
		"401": func(rt *runtimetest.Runtime) { rt.SetToken("mine") },
		"409": func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Answer(http.StatusConflict), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			rt := runtimetest.Start(t).Next()
			breaks(rt)
			b := &box{sb: pooled(rt), template: withRuntime}
			b.serve(t, "a")
			if c := b.await(t, initialized); c.Reason != v1alpha1.ReasonFailed || !strings.Contains(c.Message, "another caller has initialized it") {
				t.Errorf("told %+v", c)
			}
			sb := b.now()
			if sb.Status.Phase != v1alpha1.SandboxFailed || v1alpha1.StateOf(sb, time.Now()) != v1alpha1.StateDead || sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != "" {
				t.Errorf("the sandbox is %+v", sb)
			}
		})
	}
}

// TestARuntimeInAPoolIsTriedAgain: for as long as it takes.
func TestARuntimeInAPoolIsTriedAgain(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	rt.Act(runtimetest.Answer(http.StatusNotFound), 3)
	b := &box{sb: pooled(rt), template: withRuntime}
	b.serve(t, "a")
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue || len(rt.Calls()) != 4 {
		t.Errorf("told %+v after %d calls", c, len(rt.Calls()))
	}
}

// TestNothingIsSentWithoutTheTemplate: it may say that the runtime speaks TLS.
func TestNothingIsSentWithoutTheTemplate(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	setup := newSetup(t, runtime.Options{})
	sb := pooled(rt)
	setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return sb, nil }
	for _, template := range []string{"", withTLS} {
		setup.WithTemplate = (&box{template: template}).withTemplate
		if _, err := setup.InitInPool(t.Context(), sb); err == nil || !strings.Contains(err.Error(), "TLS") {
			t.Errorf("got %v", err)
		}
	}
	if len(rt.Calls()) != 0 {
		t.Errorf("called %+v", rt.Calls())
	}
}

func TestASandboxInAPoolWithoutARuntimeDoesNotWait(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	b := &box{sb: pooled(rt), template: plainTemplate}
	b.serve(t, "a")
	b.await(t, initialized)
	if meta.FindStatusCondition(b.now().Status.Conditions, initialized) != nil || len(rt.Calls()) != 0 {
		t.Errorf("the sandbox is %+v, after %d calls", b.now().Status, len(rt.Calls()))
	}
}

// TestASandboxInAPoolThatHasChangedIsNotCalled: its address may be another pod's.
func TestASandboxInAPoolThatHasChangedIsNotCalled(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   error
	}{
		"the same": {func(*v1alpha1.Sandbox) {}, nil},
		"claimed":  {func(sb *v1alpha1.Sandbox) { sb.OwnerReferences = nil }, agentruntime.ErrObsolete},
		"unready": {func(sb *v1alpha1.Sandbox) {
			meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse})
		}, agentruntime.ErrObsolete},
		"restarted":       {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.RestartCount = new(int32(1)) }, agentruntime.ErrObsolete},
		"has a token":     {func(sb *v1alpha1.Sandbox) { claims.EndPoolSetup(sb, "1/x", time.Now()) }, agentruntime.ErrObsolete},
		"another address": {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "127.0.0.9" }, agentruntime.ErrObsolete},
		"another pod":     {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = "other" }, agentruntime.ErrObsolete},
		"another":         {func(sb *v1alpha1.Sandbox) { sb.UID = "other" }, agentruntime.ErrObsolete},
		"locked":          {func(sb *v1alpha1.Sandbox) { sb.Annotations[v1alpha1.AnnotationLock] = "x" }, agentruntime.ErrObsolete},
		"deleted":         {func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }, agentruntime.ErrObsolete},
	} {
		t.Run(name, func(t *testing.T) {
			rt := runtimetest.Start(t).Next()
			queued := pooled(rt)
			now := queued.DeepCopy()
			test.change(now)
			setup := newSetup(t, runtime.Options{})
			setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return now, nil }
			setup.WithTemplate = (&box{template: withRuntime}).withTemplate
			if _, err := setup.InitInPool(t.Context(), queued); !errors.Is(err, test.want) || (len(rt.Calls()) == 1) != (test.want == nil) {
				t.Errorf("got %v after %d calls", err, len(rt.Calls()))
			}
		})
	}
	rt := runtimetest.Start(t).Next()
	setup, cluster, _ := inCluster(t, rt)
	sb := pooled(rt)
	sb.Status.PodInfo.PodUID = "pod-uid"
	pod := podstest.PodOf(sb)
	pod.Status.PodIPs = nil
	cluster.Set(pod)
	setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return sb, nil }
	setup.WithTemplate = (&box{template: withRuntime}).withTemplate
	if _, err := setup.InitInPool(t.Context(), sb); !errors.Is(err, podaddress.ErrStale) || len(rt.Calls()) != 0 {
		t.Errorf("got %v after %d calls", err, len(rt.Calls()))
	}
}

// TestAPoolTokenStays: also through a resume of a sandbox whose claim set up no runtime.
func TestAPoolTokenStays(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	sb := claimed(rt)
	sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] = "1/pod.0"
	sb.Status.Phase = v1alpha1.SandboxResuming
	claims.BeginSetupAgain(sb, &sb.Status, time.Now())
	b := &box{sb: sb}
	b.serve(t, "a")
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue || rt.Token() != tokenIn(t, sb) {
		t.Errorf("told %+v, the token is %q", c, rt.Token())
	}
}

// TestPoolTokensNeedTheirVersion: an id that no server has written is of none.
func TestPoolTokensNeedTheirVersion(t *testing.T) {
	for _, id := range []string{"2/pod.0", "0/pod.0", "1/", "1", "x"} {
		sb := boundWith("uid", "")
		sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] = id
		if _, err := newKeyring(t, 1).Token(t.Context(), "claim", sb); !errors.Is(err, agentruntime.ErrVersion) {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

// TestAnAttemptInAPoolIsOneReadOfThePod: it does not wait until the Pod can be read.
func TestAnAttemptInAPoolIsOneReadOfThePod(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	setup, cluster, sb := inCluster(t, rt)
	pool := pooled(rt)
	sb.OwnerReferences, sb.Status.Conditions = pool.OwnerReferences, pool.Status.Conditions
	setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return sb, nil }
	setup.WithTemplate = (&box{template: withRuntime}).withTemplate
	cluster.SetDown(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads atomic.Int32
	cluster.OnRead(func() {
		if reads.Add(1) > 1 {
			cancel()
		}
	})
	if _, err := setup.InitInPool(ctx, sb); !errors.Is(err, podaddress.ErrUnavailable) || reads.Load() != 1 || len(rt.Calls()) != 0 {
		t.Errorf("got %v after %d reads and %d calls", err, reads.Load(), len(rt.Calls()))
	}
}

// TestServersThatDoNotKnowPoolTokensHaveNoShare: of the sandboxes that get such tokens, or have them.
func TestServersThatDoNotKnowPoolTokensHaveNoShare(t *testing.T) {
	fleet := runtimetest.Start(t)
	self, servers := agentruntime.ServerName("self"), []string{agentruntime.ServerName("self")}
	for i := range 20 {
		servers = append(servers, fmt.Sprint("older-", i))
	}
	pool := &box{sb: pooled(fleet.Next()), template: withRuntime}
	pool.serve(t, self, servers...)
	kept := claimed(fleet.Next())
	kept.Annotations[v1alpha1.AnnotationRuntimeTokenID] = "1/pod.0"
	kept.Status.Phase = v1alpha1.SandboxResuming
	claims.BeginSetupAgain(kept, &kept.Status, time.Now())
	resumes := &box{sb: kept}
	resumes.serve(t, self, servers...)
	for _, b := range []*box{pool, resumes} {
		if c := b.await(t, initialized); c.Status != metav1.ConditionTrue {
			t.Errorf("told %+v", c)
		}
	}
}

// TestWorkThatSeemsObsoleteGoesOn: what was read of the sandbox may be out of date, and then no event
// says that it waits as before.
func TestWorkThatSeemsObsoleteGoesOn(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	b := &box{sb: pooled(rt), template: withRuntime, missed: 1}
	b.serve(t, "a")
	if c := b.await(t, initialized); c.Status != metav1.ConditionTrue || len(rt.Calls()) != 1 {
		t.Errorf("told %+v after %d calls", c, len(rt.Calls()))
	}
}

// TestWorkThatHasEndedBeginsAgain: where a sandbox waits as before, as the next event or list says.
func TestWorkThatHasEndedBeginsAgain(t *testing.T) {
	fleet := runtimetest.Start(t)
	rt, hold := fleet.Next(), make(chan struct{})
	came := hangs(fleet, rt, hold)
	b := &box{sb: pooled(rt), template: withRuntime}
	waits := b.sb
	r, _ := b.serve(t, "a")
	<-came
	b.mu.Lock()
	b.servers = nil // no event says how it ends
	b.mu.Unlock()
	close(hold)
	b.await(t, initialized)
	b.mu.Lock()
	b.sb = waits
	b.mu.Unlock()
	rt.Reset()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		r.SandboxesListed([]*v1alpha1.Sandbox{waits})
		if claims.SetupPending(&b.now().Status) {
			return errors.New("it is not set up")
		}
		return nil
	})
	if rt.Token() != tokenIn(t, b.now()) {
		t.Errorf("the token is %q", rt.Token())
	}
}

// inPoolWith returns a setup with a key, for one sandbox of a pool.
func inPoolWith(t *testing.T, keyring *agentruntime.Keyring, sb *v1alpha1.Sandbox) *agentruntime.Setup {
	t.Helper()
	setup := newSetup(t, runtime.Options{})
	setup.Keyring = keyring
	setup.Sandbox = func(context.Context, string, string) (*v1alpha1.Sandbox, error) { return sb, nil }
	setup.WithTemplate = (&box{template: withRuntime}).withTemplate
	return setup
}

// TestATokenOfTheNewestVersionIsNoStrangers: a server that gave it may have stopped before it wrote
// so, and the server that comes next does not know that version yet. A token of an older version is
// a stranger's: who has an old key can make it.
func TestATokenOfTheNewestVersionIsNoStrangers(t *testing.T) {
	client := etcd(t)
	stored := withVersions(t, 1, anHour)
	put(t, client, "registry", stored)
	load := func() *agentruntime.Keyring {
		t.Helper()
		keyring, err := agentruntime.Load(t.Context(), client, "registry", nil)
		if err != nil {
			t.Fatal(err)
		}
		return keyring
	}
	before := newKeyring(t, 1)
	late := []*agentruntime.Keyring{load(), load(), load()}
	stored, err := agentruntime.AddVersion(stored, anHour)
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "registry", stored)
	newest := load()
	for name, test := range map[string]struct {
		gave, next *agentruntime.Keyring
		recognized bool
	}{
		"not known yet": {newest, late[0], true},
		"rotated":       {before, newest, false},
		"leaked":        {before, late[1], false},
	} {
		rt := runtimetest.Start(t).Next()
		sb := pooled(rt)
		want, err := inPoolWith(t, test.gave, sb).InitInPool(t.Context(), sb)
		if err != nil {
			t.Fatal(err)
		}
		given := rt.Token()
		id, err := inPoolWith(t, test.next, sb).InitInPool(t.Context(), sb)
		switch {
		case !test.recognized && runtime.IsUnauthorized(err):
		case !test.recognized || err != nil || id != want || rt.Token() != given:
			t.Errorf("%s: got %q, %v, want %q", name, id, err, want)
		}
	}
	// One attempt that fails otherwise proves nothing.
	rt := runtimetest.Start(t).Next()
	sb := pooled(rt)
	rt.SetToken("a stranger's")
	rt.Act(runtimetest.Answer(http.StatusUnauthorized), 1)
	rt.Act(runtimetest.Answer(http.StatusServiceUnavailable), 1)
	if _, err := inPoolWith(t, late[2], sb).InitInPool(t.Context(), sb); !runtime.IsUnreachable(err) {
		t.Errorf("got %v", err)
	}
}
