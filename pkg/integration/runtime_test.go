// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// withRuntimes returns a server with a pool of n available sandboxes that have
// agent-runtimes, which it knows of.
func withRuntimes(t *testing.T, n int, opts ...testutil.Option) (*testutil.Server, *v1alpha1.SandboxSet, *runtimetest.Fleet) {
	t.Helper()
	s := start(t, opts...)
	fleet := runtimetest.Start(t)
	set, _ := poolOf(t, s, fleet, "pool", n)
	knows(t, s, set, int32(n))
	return s, set, fleet
}

// withPatientRuntimes lets a runtime be as slow as the machine is: it is called once.
var withPatientRuntimes = testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.RuntimeAttempt = expect.Patience })

// poolOf makes a pool of n available sandboxes with agent-runtimes, and returns those.
func poolOf(t *testing.T, s *testutil.Server, fleet *runtimetest.Fleet, name string, n int) (*v1alpha1.SandboxSet, []*runtimetest.Runtime) {
	t.Helper()
	set := builders.Set(name, int32(n))
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	set, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set, more(t, s, fleet, set, 0, n)
}

// more puts more sandboxes with agent-runtimes into a pool.
func more(t *testing.T, s *testutil.Server, fleet *runtimetest.Fleet, set *v1alpha1.SandboxSet, first, n int) []*runtimetest.Runtime {
	t.Helper()
	var runtimes []*runtimetest.Runtime
	s.StockWith(t, set, first, n, func(_ int, sb *v1alpha1.Sandbox) {
		rt := fleet.Next()
		runtimes = append(runtimes, rt)
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = rt.IP, rt.IP
	})
	return runtimes
}

var environment = map[string]string{"MODE": "test", "TOKEN": secret}

// asks gives a claim an environment, and time.
func asks(claim *v1alpha1.SandboxClaim) {
	claim.Spec.EnvVars = environment
	claim.Spec.CreateOnNoStock = new(false)
	timeout(expect.Patience)(claim)
}

// runtimesOf are those of the sandboxes that count.
func runtimesOf(t *testing.T, fleet *runtimetest.Fleet, claim *v1alpha1.SandboxClaim) []*runtimetest.Runtime {
	t.Helper()
	var its []*runtimetest.Runtime
	for _, entry := range claim.Status.Sandboxes {
		its = append(its, fleet.At(entry.PodIPs[0]))
	}
	return its
}

// isSetUp requires that a claim has n sandboxes, each set up with its environment and with
// a token of its own.
func isSetUp(t *testing.T, fleet *runtimetest.Fleet, claim *v1alpha1.SandboxClaim, n int) {
	t.Helper()
	if testutil.Completed(claim) != "" || len(claim.Status.Sandboxes) != n {
		t.Errorf("claim %s has %d sandboxes, want %d: %s", claim.Name, len(claim.Status.Sandboxes), n, claim.Status.Message)
	}
	tokens := map[string]bool{}
	for _, rt := range runtimesOf(t, fleet, claim) {
		if diff := cmp.Diff(claim.Spec.EnvVars, rt.Env()); diff != "" && len(claim.Spec.EnvVars)+len(rt.Env()) > 0 {
			t.Errorf("the environment of %s (-claim +runtime):\n%s", rt.IP, diff)
		}
		if _, err := uuid.Parse(rt.Token()); err != nil || tokens[rt.Token()] {
			t.Errorf("runtime %s has the token %q, which is another's (%t) or no UUID: %v", rt.IP, rt.Token(), tokens[rt.Token()], err)
		}
		tokens[rt.Token()] = true
	}
}

// failedReplicas requires that the claim says so.
func failedReplicas(t *testing.T, claim *v1alpha1.SandboxClaim, want int32) {
	t.Helper()
	if got := claim.Status.FailedReplicas; got != want {
		t.Errorf("claim %s says that %d sandboxes failed, want %d", claim.Name, got, want)
	}
}

// TestEnvironmentReachesAllWithinTheCall: all runtimes are called at the same time, and
// before the create is answered.
func TestEnvironmentReachesAllWithinTheCall(t *testing.T) {
	const n = 12
	s, set, fleet := withRuntimes(t, n, withSyncWindow(expect.Patience/4), withPatientRuntimes)
	var mu sync.Mutex
	waiting, all := map[string]bool{}, make(chan struct{})
	fleet.Script(func(rt *runtimetest.Runtime, _ runtimetest.Call) runtimetest.Action {
		mu.Lock()
		defer mu.Unlock()
		if waiting[rt.IP] = true; len(waiting) == n {
			select {
			case <-all:
			default:
				close(all)
			}
		}
		return runtimetest.Hang(all)
	})
	claim := create(t, s, testutil.Claim(set, "one", n, asks))
	isSetUp(t, fleet, claim, n)
	failedReplicas(t, claim, 0)
	for _, rt := range runtimesOf(t, fleet, claim) {
		for _, call := range rt.Calls() {
			if call.Method != http.MethodPost || call.Path != "/init" || call.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s was called %s %s, %v", rt.IP, call.Method, call.Path, call.Header)
			}
		}
	}
	for _, sb := range owned(t, s, claim) {
		if sb.Annotations[v1alpha1.AnnotationStarting] != "" || len(sb.OwnerReferences) != 0 {
			t.Errorf("sandbox %s counts, and is starting: %v", sb.Name, sb.ObjectMeta)
		}
	}
	checkInvariants(t, s)
}

// A runtime that is slower than the create may wait is waited for in the background, and
// its sandbox does not count before.
func TestSlowRuntime(t *testing.T) {
	s, set, fleet := withRuntimes(t, 2, withSyncWindow(time.Millisecond))
	release := make(chan struct{})
	fleet.Script(func(*runtimetest.Runtime, runtimetest.Call) runtimetest.Action { return runtimetest.Hang(release) })
	claim := create(t, s, testutil.Claim(set, "one", 2, asks))
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || claim.Status.ClaimedReplicas != 0 || len(claim.Status.Sandboxes) != 0 {
		t.Errorf("answered %+v while no runtime is set up", claim.Status)
	}
	for _, sb := range owned(t, s, claim) {
		if sb.Annotations[v1alpha1.AnnotationStarting] == "" || !metav1.IsControlledBy(&sb, claim) {
			t.Errorf("sandbox %s is not starting: %v", sb.Name, sb.ObjectMeta)
		}
	}
	close(release)
	isSetUp(t, fleet, s.AwaitClaim(t, namespace, "one", testutil.Completed), 2)
	checkInvariants(t, s)
}

// What comes right when it is tried again costs no sandbox, and what does not, costs one.
func TestRuntimesThatFail(t *testing.T) {
	const foreign = "b0e4a1d8-9a41-4c8e-9d4b-1f0e8f6e6a11"
	tests := map[string]struct {
		do     func(rt *runtimetest.Runtime)
		failed int32
	}{
		"fails-twice":       {do: func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Answer(http.StatusInternalServerError), 2) }},
		"dies-before":       {do: func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Die(runtimetest.Before), 1) }},
		"dies-after":        {do: func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Die(runtimetest.After), 1) }},
		"fails-always":      {do: func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Answer(http.StatusInternalServerError), 100) }, failed: 1},
		"refuses":           {do: func(rt *runtimetest.Runtime) { rt.Act(runtimetest.Answer(http.StatusBadRequest), 100) }, failed: 1},
		"leads-away":        {do: func(rt *runtimetest.Runtime) { rt.Act(away, 100) }, failed: 1},
		"has-another-token": {do: func(rt *runtimetest.Runtime) { rt.SetToken(foreign) }, failed: 1},
		"is-not-there":      {do: func(rt *runtimetest.Runtime) { rt.Stop() }, failed: 1},
		"never-answers":     {do: hang, failed: 1},
	}
	s := start(t, withSyncWindow(time.Millisecond))
	fleet := runtimetest.Start(t)
	bad := map[string]*runtimetest.Runtime{}
	for name, tc := range tests {
		set, runtimes := poolOf(t, s, fleet, name, 2)
		knows(t, s, set, 2)
		bad[name] = runtimes[0]
		tc.do(bad[name])
		create(t, s, testutil.Claim(set, name, 2, asks)) // both of them
		more(t, s, fleet, set, 2, 1)                     // and one in reserve
	}
	for name, tc := range tests {
		claim := s.AwaitClaim(t, namespace, name, testutil.Completed)
		isSetUp(t, fleet, claim, 2)
		failedReplicas(t, claim, tc.failed)
		if counts := slices.Contains(runtimesOf(t, fleet, claim), bad[name]); counts != (tc.failed == 0) {
			t.Errorf("%s: the sandbox counts: %t", name, counts)
		}
		failed, err := sandboxes(s).Get(t.Context(), name+"-000000", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if gone := failed.Spec.ShutdownTime != nil && failed.Annotations[v1alpha1.AnnotationOwner] == ""; gone != (tc.failed > 0) {
			t.Errorf("%s: the sandbox is let go: %t", name, gone)
		}
	}
	if got := bad["has-another-token"]; got.Token() != foreign || len(got.Env()) > 0 {
		t.Errorf("the runtime of another claim has %v now", got.Env())
	}
	checkInvariants(t, s)
}

// away leads to another address.
var away = runtimetest.Action{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"http://127.0.0.1:1/init"}}}

// hang never answers.
func hang(rt *runtimetest.Runtime) { rt.Act(runtimetest.Hang(make(chan struct{})), 100) }

// TestManySandboxesAtOnce: one claim of 500, in one call.
func TestManySandboxesAtOnce(t *testing.T) {
	const n = 500
	s, set, fleet := withRuntimes(t, n, withSyncWindow(expect.Patience/4), withPatientRuntimes)
	isSetUp(t, fleet, create(t, s, testutil.Claim(set, "many", n, asks)), n)
	for _, rt := range fleet.Runtimes() {
		if rt.Inits() != 1 {
			t.Errorf("%s was set up %d times", rt.IP, rt.Inits())
		}
	}
	checkInvariants(t, s)
}

// TestThreeOfAHundredFailForGood: they are replaced as long as the pool has others, and
// then the claim ends with what it has.
func TestThreeOfAHundredFailForGood(t *testing.T) {
	t.Parallel()
	const n, bad = 100, 3
	for name, reserve := range map[string]int{"replaced": bad, "missing": 0} {
		t.Run(name, func(t *testing.T) {
			s, set, fleet := withRuntimes(t, n, withSyncWindow(time.Millisecond))
			for _, rt := range fleet.Runtimes()[:bad] {
				rt.Act(runtimetest.Answer(http.StatusBadRequest), 100)
			}
			create(t, s, testutil.Claim(set, "hundred", n, asks))
			s.AwaitClaim(t, namespace, "hundred", func(c *v1alpha1.SandboxClaim) string {
				if c.Status.FailedReplicas != bad || c.Status.ClaimedReplicas != n-bad {
					return "not all are set up or failed"
				}
				return ""
			})
			more(t, s, fleet, set, n, reserve)
			if reserve == 0 {
				shorten(t, s, "hundred")
			}
			claim := s.AwaitClaim(t, namespace, "hundred", testutil.Completed)
			isSetUp(t, fleet, claim, n-bad+reserve)
			failedReplicas(t, claim, bad)
			if got := isTrue(claim, v1alpha1.ClaimConditionTimedOut); got != (reserve == 0) {
				t.Errorf("TimedOut is %t: %s", got, claim.Status.Message)
			}
			checkInvariants(t, s)
		})
	}
}

// shorten lets the time of a claim end.
func shorten(t *testing.T, s *testutil.Server, name string) {
	t.Helper()
	if _, err := claims(s).Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"claimTimeout":"1s"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestAllOrNothingWithARuntimeThatFails: nothing counts before all are set up, and with one
// that fails and no other, nothing ever does.
func TestAllOrNothingWithARuntimeThatFails(t *testing.T) {
	t.Parallel()
	for name, reserve := range map[string]int{"replaced": 1, "missing": 0} {
		t.Run(name, func(t *testing.T) {
			const n = 4
			s, set, fleet := withRuntimes(t, n, withSyncWindow(time.Millisecond))
			fleet.Runtimes()[0].Act(runtimetest.Answer(http.StatusBadRequest), 100)
			create(t, s, testutil.Claim(set, "all", n, both(asks, allOrNothing)))
			failing := s.AwaitClaim(t, namespace, "all", func(c *v1alpha1.SandboxClaim) string {
				if c.Status.FailedReplicas != 1 {
					return "none has failed"
				}
				return ""
			})
			if len(failing.Status.Sandboxes) > 0 {
				t.Errorf("it shows %d of %d", len(failing.Status.Sandboxes), n)
			}
			more(t, s, fleet, set, n, reserve)
			if reserve == 0 {
				shorten(t, s, "all")
			}
			claim := s.AwaitClaim(t, namespace, "all", testutil.Completed)
			if reserve > 0 {
				isSetUp(t, fleet, claim, n)
			} else if claim.Status.ClaimedReplicas != 0 || !isTrue(claim, v1alpha1.ClaimConditionTimedOut) || len(owned(t, s, claim)) > 0 {
				t.Errorf("ends with %+v", claim.Status)
			}
			checkInvariants(t, s)
		})
	}
}

// TestRuntimesThatAreNotCalled: because the claim does not want it, or there is none, or
// nothing is written.
func TestRuntimesThatAreNotCalled(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1, withSyncWindow(time.Millisecond))
	client, heard := hearing(t, s)
	send := func(claim *v1alpha1.SandboxClaim, dryRun ...string) *v1alpha1.SandboxClaim {
		t.Helper()
		created, err := client.AgentsV1alpha1().SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			t.Fatal(err)
		}
		if testutil.Completed(created) != "" || created.Status.ClaimedReplicas != 1 {
			t.Errorf("claim %s is answered with %+v", claim.Name, created.Status)
		}
		return created
	}
	send(testutil.Claim(set, "dry", 1, asks), metav1.DryRunAll)
	if said := heard.take(); strings.Contains(said, "envVars") {
		t.Errorf("a claim on sandboxes with a runtime is warned %q", said)
	}
	send(testutil.Claim(set, "skips", 1, func(claim *v1alpha1.SandboxClaim) { claim.Spec.SkipInitRuntime = true }))
	for _, rt := range fleet.Runtimes() {
		if len(rt.Calls()) > 0 {
			t.Errorf("runtime %s was called: %v", rt.IP, rt.Calls())
		}
	}
	heard.take()
	bare := s.Set(t, namespace, "bare", 2)
	s.Stock(t, bare, 0, 2)
	knows(t, s, bare, 2)
	send(testutil.Claim(bare, "without", 1, asks))
	if said := heard.take(); !strings.Contains(said, "envVars") || strings.Contains(said, secret) {
		t.Errorf("envVars that nobody takes are answered with the warning %q", said)
	}
	send(testutil.Claim(bare, "asks-for-nothing", 1, nil))
	if said := heard.take(); said != "" {
		t.Errorf("a claim without envVars is warned %q", said)
	}
	checkInvariants(t, s)
}

// A runtime gets its token also where there is no environment.
func TestTokenWithoutEnvironment(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1, withSyncWindow(expect.Patience/4))
	isSetUp(t, fleet, create(t, s, testutil.Claim(set, "one", 1, nil)), 1)
	checkInvariants(t, s)
}
