// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/runtimesetup"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// runtimes is an allocator that runs, with a pool of sandboxes that have an agent-runtime.
type runtimes struct {
	*desk
	set *v1alpha1.SandboxSet
	// setUp is what becomes of one; calls counts them.
	setUp func(ctx context.Context, sb *v1alpha1.Sandbox) error
	calls atomic.Int64

	mu       sync.Mutex
	revision int
	// written are the transactions so far.
	written []*slip
	stop    func()
}

// hasRuntime is a set whose sandboxes have an agent-runtime.
func hasRuntime(set *v1alpha1.SandboxSet) {
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
}

func newRuntimes(t *testing.T, stock int, setUp func(ctx context.Context, sb *v1alpha1.Sandbox) error) *runtimes {
	set := setOf("pool", "", hasRuntime)
	r := &runtimes{desk: newDesk(t, set), set: set, setUp: setUp, revision: 20}
	r.shelf.templates["pool-"+pods] = templateOfPod("pool-" + pods)
	r.finisher.runtimes.SetUp = func(ctx context.Context, _ *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error {
		r.calls.Add(1)
		return r.setUp(ctx, sb)
	}
	r.supplier.seal = func(*v1alpha1.SandboxClaim) (string, string, error) { return "sealed", "1", nil }
	r.begin = func() Txn { return &slip{commit: r.write} }
	r.stock(stock)
	return r
}

// stock adds sandboxes to the pool.
func (r *runtimes) stock(n int) {
	for range n {
		r.stocks(fmt.Sprintf("sb-%04d", len(r.sandboxes)), r.set, pods)
	}
}

func (r *runtimes) write(s *slip) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revision++
	s.at(r.revision)
	// What the plans after this one are made of is theirs.
	seen := &slip{claim: s.claim.DeepCopy()}
	for _, sb := range s.sandboxes {
		seen.sandboxes = append(seen.sandboxes, sb.DeepCopy())
	}
	r.written = append(r.written, seen)
	return nil
}

// transactions are those so far.
func (r *runtimes) transactions() []*slip {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.written)
}

// runs lets the background work run until the end of the test.
func (r *runtimes) runs() *runtimes {
	r.stop = r.desk.runs()
	return r
}

// creates creates a claim and returns it as answered.
func (r *runtimes) creates(changes ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	r.Helper()
	claim, err := r.Create(r.Context(), r.asks(changes...))
	if err != nil {
		r.Fatal(err)
	}
	return claim
}

// asks is a claim with envVars.
func (r *runtimes) asks(changes ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	return claimOf(func(c *v1alpha1.SandboxClaim) {
		c.CreationTimestamp = metav1.NewTime(r.clock.Now())
		c.Spec.EnvVars, c.Spec.CreateOnNoStock = map[string]string{"A": "b"}, new(false)
		for _, change := range changes {
			change(c)
		}
	})
}

func ofReplicas(n int32) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = &n }
}

func withMounts(c *v1alpha1.SandboxClaim) {
	c.Spec.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: "data", MountPath: "/data"}}
}

func allOrNothing(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }

// last is the last transaction.
func (r *runtimes) last() *slip {
	r.Helper()
	all := r.transactions()
	if len(all) == 0 {
		r.Fatal("nothing was written")
	}
	return all[len(all)-1]
}

// ends lets time pass until the claim has ended, and returns it.
func (r *runtimes) ends(step time.Duration) *v1alpha1.SandboxClaim {
	r.Helper()
	r.stepUntil(step, func() bool { return len(r.transactions()) > 0 && !claims.Unfinished(r.last().claim) })
	return r.last().claim
}

// namesOf are the names of all sandboxes in the transactions that are like that.
func (r *runtimes) namesOf(are func(*v1alpha1.Sandbox) bool) []string {
	var names []string
	for _, s := range r.transactions() {
		for _, sb := range s.sandboxes {
			if are(sb) {
				names = append(names, sb.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func succeeds(context.Context, *v1alpha1.Sandbox) error { return nil }

func refuses(context.Context, *v1alpha1.Sandbox) error {
	return &claims.SetupError{
		Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Message: "the runtime said no",
	}
}

func hangs(ctx context.Context, _ *v1alpha1.Sandbox) error {
	<-ctx.Done()
	return ctx.Err()
}

func conditionOf(sb *v1alpha1.Sandbox, kind string) string {
	c := meta.FindStatusCondition(sb.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// TestSetUpInTheCall: the answer to the create has sandboxes that are set up; it takes one
// transaction before and one after.
func TestSetUpInTheCall(t *testing.T) {
	const initialized = v1alpha1.SandboxConditionRuntimeInitialized
	for name, changes := range map[string][]func(*v1alpha1.SandboxClaim){
		"one": {ofReplicas(1)}, "many": {ofReplicas(100)}, "all or nothing": {ofReplicas(100), allOrNothing},
		"without envVars": {ofReplicas(1), func(c *v1alpha1.SandboxClaim) { c.Spec.EnvVars = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			n := int64(claims.Replicas(claimOf(changes[0])))
			// All at once, so that none ends before all have begun.
			var begun sync.WaitGroup
			begun.Add(int(n))
			r := newRuntimes(t, int(n), func(_ context.Context, sb *v1alpha1.Sandbox) error {
				if !plan.IsStarting(sb) || conditionOf(sb, initialized) != "False/Pending" || sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] != "sealed" {
					t.Errorf("is set up as %+v", sb)
				}
				begun.Done()
				begun.Wait()
				return nil
			}).runs()
			claim := r.creates(changes...)
			if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || int64(claim.Status.ClaimedReplicas) != n || r.calls.Load() != n {
				t.Errorf("%d calls: %+v", r.calls.Load(), claim.Status)
			}
			all := r.transactions()
			if len(all) < 2 || len(all) > 3 || all[0].claim.Status.ClaimedReplicas != 0 || len(all[0].claim.Status.Sandboxes) != 0 {
				t.Fatalf("%d transactions, the first says %+v", len(all), all[0].claim.Status)
			}
			for _, sb := range r.last().sandboxes {
				if plan.IsStarting(sb) || conditionOf(sb, initialized) != "True/Succeeded" || conditionOf(sb, v1alpha1.SandboxConditionVolumesMounted) != "" {
					t.Errorf("counts as %+v", sb)
				}
			}
		})
	}
}

// TestNothingToSetUp: skipInitRuntime, and sandboxes without an agent-runtime, cost no call
// and no second transaction. A client that wanted envVars delivered gets a warning.
func TestNothingToSetUp(t *testing.T) {
	skips := func(c *v1alpha1.SandboxClaim) { c.Spec.SkipInitRuntime = true }
	plain := func(set *v1alpha1.SandboxSet) { set.Spec.Runtimes = nil }
	noEnv := func(c *v1alpha1.SandboxClaim) { c.Spec.EnvVars = nil }
	stays := func(*v1alpha1.SandboxSet) {}
	tests := map[string]struct {
		claim func(*v1alpha1.SandboxClaim)
		set   func(*v1alpha1.SandboxSet)
		warns string
	}{
		"it is skipped":                {skips, stays, ""},
		"there is no runtime":          {orFails, plain, "SandboxSet pool has no agent-runtime: envVars are not delivered"},
		"no runtime, and no envVars":   {noEnv, plain, ""},
		"there is none, it is skipped": {skips, plain, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRuntimes(t, 0, refuses).runs()
			tc.set(r.set)
			r.stock(1)
			var warned warnings
			claim, err := r.Create(warning.WithWarningRecorder(t.Context(), &warned), r.asks(tc.claim))
			if err != nil || claims.Unfinished(claim) || claim.Status.ClaimedReplicas != 1 || r.calls.Load() != 0 || len(r.transactions()) != 1 {
				t.Errorf("%d calls, %d transactions, %v: %+v", r.calls.Load(), len(r.transactions()), err, claim)
			}
			if got := strings.Join(warned, "\n"); got != tc.warns {
				t.Errorf("warns %q", got)
			}
		})
	}
}

func orFails(c *v1alpha1.SandboxClaim) { c.Spec.OnShortage = v1alpha1.ShortageFail }

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// TestNoClientOfRuntimes: a server that cannot set up runtimes says so, and counts nothing.
func TestNoClientOfRuntimes(t *testing.T) {
	r := newRuntimes(t, 3, succeeds).runs()
	r.finisher.runtimes.SetUp = runtimesetup.None
	claim := r.creates(ofReplicas(2))
	checkEnd(t, claim, v1alpha1.ReasonRuntimeInitFailed, 0)
	if r.left("pool") != 1 {
		t.Errorf("%d are left", r.left("pool"))
	}
}

func checkEnd(t *testing.T, claim *v1alpha1.SandboxClaim, reason string, counts int32) {
	t.Helper()
	completed := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted)
	if claims.Unfinished(claim) || completed == nil || completed.Reason != reason || claim.Status.ClaimedReplicas != counts ||
		int(counts) != len(claim.Status.Sandboxes) {
		t.Errorf("want the end %s with %d, got %+v", reason, counts, claim.Status)
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	if all := counts == int32(claims.Replicas(claim)); ready == nil || all != (ready.Status == metav1.ConditionTrue) {
		t.Errorf("is ready: %+v", ready)
	}
}

// failing is a set-up that fails for some of the sandboxes.
func failing(fails func(name string) bool) func(context.Context, *v1alpha1.Sandbox) error {
	return func(ctx context.Context, sb *v1alpha1.Sandbox) error {
		if fails(sb.Name) {
			return refuses(ctx, sb)
		}
		return nil
	}
}

// TestSomeFail: of a hundred three fail for good. They are replaced while there are others,
// and released, or kept with what happened.
func TestSomeFail(t *testing.T) {
	three := func(name string) bool { return name == "sb-0007" || name == "sb-0042" || name == "sb-0099" }
	for _, reserve := range []bool{false, true} {
		for _, stock := range []int{103, 100} {
			t.Run(fmt.Sprintf("stock %d, reserve %t", stock, reserve), func(t *testing.T) {
				r := newRuntimes(t, stock, failing(three)).runs()
				claim := r.creates(ofReplicas(100), func(c *v1alpha1.SandboxClaim) {
					c.Spec.ReserveFailedSandbox = reserve
					c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Minute}
					if stock == 100 {
						c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Minute}
					}
				}, unlessStocked(r, stock))
				if stock == 103 {
					checkEnd(t, claim, v1alpha1.ReasonAllReplicasClaimed, 100)
				} else {
					r.stepUntil(time.Millisecond, func() bool { // before the time of set-ups is up
						status := &r.last().claim.Status
						return status.ClaimedReplicas == 97 && status.FailedReplicas == 3
					})
					claim = r.ends(10 * time.Second)
					checkEnd(t, claim, v1alpha1.ReasonTimeoutReached, 97)
					for _, part := range []string{ // in the order in which they failed
						"claimed 97/100 sandboxes; 3 failed in preparation: sb-", "sb-0007: the runtime said no", "sb-0042: the runtime said no", "sb-0099: the runtime said no",
					} {
						if !strings.Contains(claim.Status.Message, part) {
							t.Errorf("says %q", claim.Status.Message)
						}
					}
				}
				if claim.Status.FailedReplicas != 3 {
					t.Errorf("%d failed", claim.Status.FailedReplicas)
				}
				failed := r.namesOf(func(sb *v1alpha1.Sandbox) bool {
					kept := sb.Labels[v1alpha1.LabelReservedFailedSandbox] == "true" && sb.Spec.ShutdownTime == nil
					gone := sb.Spec.ShutdownTime != nil && sb.Annotations[v1alpha1.AnnotationOwner] == ""
					c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
					return (reserve && kept || !reserve && gone) && c.Reason == v1alpha1.ReasonFailed && c.Message == "the runtime said no"
				})
				if !slices.Equal(failed, []string{"sb-0007", "sb-0042", "sb-0099"}) {
					t.Errorf("failed are %v", failed)
				}
				if most := int64(100 + stock - 100); r.calls.Load() != most {
					t.Errorf("%d calls, want %d", r.calls.Load(), most)
				}
			})
		}
	}
}

// unlessStocked lets a create not wait for what never comes.
func unlessStocked(r *runtimes, stock int) func(*v1alpha1.SandboxClaim) {
	return func(*v1alpha1.SandboxClaim) {
		if stock == 100 {
			r.options.MaxWaitingCreates = 0
		}
	}
}

// TestFailuresAreBounded: a claim whose runtimes all refuse it ends, and uses up no pool.
func TestFailuresAreBounded(t *testing.T) {
	for _, n := range []int32{1, 3, 5} {
		for _, change := range []func(*v1alpha1.SandboxClaim){func(*v1alpha1.SandboxClaim) {}, allOrNothing} {
			r := newRuntimes(t, 40, refuses).runs()
			claim := r.creates(ofReplicas(n), change)
			checkEnd(t, claim, v1alpha1.ReasonTooManyFailures, 0)
			failed := r.namesOf(func(sb *v1alpha1.Sandbox) bool {
				c := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
				return c != nil && c.Reason == v1alpha1.ReasonFailed
			})
			// One for all or nothing ends as soon as it cannot be satisfied, also while some
			// of its sandboxes are still being prepared: those are released, and did not fail.
			prepared := 0
			if claims.AllOrNothing(claim) {
				prepared = int(n) - 1
			}
			taken, says := 40-r.left("pool"), int(claim.Status.FailedReplicas)
			if taken > int(max(10, 3*n)) || taken < says || taken > says+prepared || len(failed) != says {
				t.Errorf("a claim of %d has used up %d, of which failed %v, and says %d", n, taken, failed, says)
			}
			if !strings.Contains(claim.Status.Message, "sb-00") || !strings.Contains(claim.Status.Message, "the runtime said no") {
				t.Errorf("says %q", claim.Status.Message)
			}
		}
	}
}

// TestHopeless: what every sandbox would refuse is not tried with others, and what counts
// stays.
func TestHopeless(t *testing.T) {
	begun := make(chan struct{})
	r := newRuntimes(t, 9, func(ctx context.Context, sb *v1alpha1.Sandbox) error {
		if sb.Name != "sb-0000" {
			close(begun)
			return nil
		}
		<-begun
		return &claims.SetupError{
			Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed, Message: "no driver", Hopeless: true,
		}
	}).runs()
	r.MembersChanged("me", []string{"me"})
	claim := r.creates(ofReplicas(2), withMounts)
	checkEnd(t, claim, v1alpha1.ReasonMountFailed, 1)
	if r.calls.Load() != 2 || r.left("pool") != 7 || claim.Status.Message != "no driver" {
		t.Errorf("%d calls, left %d: %s", r.calls.Load(), r.left("pool"), claim.Status.Message)
	}
	failed := r.namesOf(func(sb *v1alpha1.Sandbox) bool {
		return conditionOf(sb, v1alpha1.SandboxConditionRuntimeInitialized) == "True/Succeeded" &&
			conditionOf(sb, v1alpha1.SandboxConditionVolumesMounted) == "False/Failed"
	})
	if !slices.Equal(failed, []string{"sb-0000"}) {
		t.Errorf("failed are %v", failed)
	}
}

// TestMountsAreMarked: in the transaction that binds, before the call; what counts has no
// mark any more.
func TestMountsAreMarked(t *testing.T) {
	r := newRuntimes(t, 2, func(_ context.Context, sb *v1alpha1.Sandbox) error {
		if !strings.HasPrefix(sb.Annotations[v1alpha1.AnnotationMounting], "me/") {
			t.Errorf("mounts with the mark %q", sb.Annotations[v1alpha1.AnnotationMounting])
		}
		return nil
	}).runs()
	r.options.MaxWaitingCreates = 0
	r.creates(withMounts)
	if n := r.calls.Load(); n != 0 {
		t.Fatalf("%d calls before this server has a name", n)
	}
	r.MembersChanged("me", []string{"me"})
	checkEnd(t, r.ends(time.Millisecond), v1alpha1.ReasonAllReplicasClaimed, 1)
	if n := len(r.transactions()); n != 3 {
		t.Errorf("%d transactions: one binds, one marks, and one counts", n)
	}
	r.options.MaxWaitingCreates = 9
	claim := r.creates(withMounts, func(c *v1alpha1.SandboxClaim) { c.Name, c.UID = "second", "second" })
	checkEnd(t, claim, v1alpha1.ReasonAllReplicasClaimed, 1)
	if n := len(r.transactions()); n != 5 {
		t.Errorf("%d transactions more: one binds and marks, and one counts", n-3)
	}
	for _, sb := range r.last().sandboxes {
		if sb.Annotations[v1alpha1.AnnotationMounting] != "" || conditionOf(sb, v1alpha1.SandboxConditionVolumesMounted) != "True/Succeeded" {
			t.Errorf("counts as %+v", sb)
		}
	}
}

// TestCallsEnd: with the claim, and with its time.
func TestCallsEnd(t *testing.T) {
	short := func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: 20 * time.Second} }
	impatient := func(c *v1alpha1.SandboxClaim) {
		c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 5 * time.Second}
		short(c)
	}
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		then   func(r *runtimes, claim *v1alpha1.SandboxClaim)
		reason string
		failed int32
	}{
		"claimTimeout":     {short, func(*runtimes, *v1alpha1.SandboxClaim) {}, v1alpha1.ReasonTimeoutReached, 1},
		"waitReadyTimeout": {impatient, func(*runtimes, *v1alpha1.SandboxClaim) {}, v1alpha1.ReasonTimeoutReached, 1},
		"deletion": {short, func(r *runtimes, claim *v1alpha1.SandboxClaim) {
			r.held = r.finisher.unfinished.of(claim.UID).snapshot().held
			r.Feeds.ClaimDeleted(claim)
		}, "", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var ended atomic.Int64
			r := newRuntimes(t, 1, func(ctx context.Context, sb *v1alpha1.Sandbox) error {
				defer ended.Add(1)
				return hangs(ctx, sb)
			}).runs()
			r.options.MaxWaitingCreates = 0
			claim := r.creates(tc.change)
			r.stepUntil(0, func() bool { return r.calls.Load() == 1 })
			tc.then(r, claim)
			if tc.reason != "" {
				claim = r.ends(time.Second)
				checkEnd(t, claim, tc.reason, 0)
			}
			r.stepUntil(0, func() bool { return ended.Load() == 1 })
			if claim.Status.FailedReplicas != tc.failed {
				t.Errorf("%d failed", claim.Status.FailedReplicas)
			}
			gone := func(sb *v1alpha1.Sandbox) bool { return sb.Spec.ShutdownTime != nil }
			r.stepUntil(0, func() bool { return slices.Equal(r.namesOf(gone), []string{"sb-0000"}) })
		})
	}
}

// TestSlowOnesDoNotHoldUp: what is set up counts while another runtime is slow.
func TestSlowOnesDoNotHoldUp(t *testing.T) {
	slow := make(chan struct{})
	r := newRuntimes(t, 5, func(_ context.Context, sb *v1alpha1.Sandbox) error {
		if sb.Name == "sb-0002" {
			<-slow
		}
		return nil
	}).runs()
	r.options.MaxWaitingCreates = 0
	r.creates(ofReplicas(5))
	r.stepUntil(100*time.Millisecond, func() bool { return r.last().claim.Status.ClaimedReplicas == 4 })
	close(slow)
	checkEnd(t, r.ends(0), v1alpha1.ReasonAllReplicasClaimed, 5)
	if n := r.calls.Load(); n != 5 {
		t.Errorf("%d calls", n)
	}
}

// TestWhoHasCallsGoesOn: a claim that is another server's by now is finished by the one
// that has calls that have not ended.
func TestWhoHasCallsGoesOn(t *testing.T) {
	slow := make(chan struct{})
	r := newRuntimes(t, 1, func(context.Context, *v1alpha1.Sandbox) error {
		<-slow
		return nil
	}).runs()
	r.prefers(prefersNone)
	r.options.MaxWaitingCreates = 0
	r.creates()
	r.stepUntil(0, func() bool { return r.calls.Load() == 1 })
	r.clock.Step(27 * time.Second)
	u := r.finisher.unfinished.of("claim-uid")
	if !r.finisher.ownership.isMine("claim-uid", u) {
		t.Error("hands the claim over")
	}
	close(slow)
	checkEnd(t, r.ends(0), v1alpha1.ReasonAllReplicasClaimed, 1)
}

// TestSetUpAgain: who takes up a claim sets up what is starting, also what another server
// may have set up; but volumes are not mounted twice.
func TestSetUpAgain(t *testing.T) {
	tests := map[string]struct {
		mark     string
		servers  []string
		calls    int64
		counts   bool
		released bool
	}{
		"no mounts began":          {"", []string{"me"}, 1, true, false},
		"of a server that is gone": {"gone/x", []string{"me"}, 0, false, true},
		"of one that lives":        {"other/x", []string{"me", "other"}, 0, false, false},
		"it is not known who does": {"other/x", nil, 0, false, false},
		"of this one, before":      {"me/x", []string{"me"}, 0, false, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRuntimes(t, 1, succeeds)
			r.finisher.runtimes.SetMembers("other", []string{"other"})
			first := r.creates(withMounts)
			bound := r.last().sandboxes[0]
			bound.ResourceVersion = "21"
			if delete(bound.Annotations, v1alpha1.AnnotationMounting); tc.mark != "" {
				bound.Annotations[v1alpha1.AnnotationMounting] = tc.mark
			}

			r = newRuntimes(t, 0, succeeds)
			r.revision = 30
			r.clock.Step(time.Second)
			r.held = []*v1alpha1.Sandbox{bound}
			r.MembersChanged("me", tc.servers)
			r.prefers(prefersAll)
			first.CreationTimestamp.Time = r.clock.Now().Add(-time.Minute)
			r.runs()
			r.Feeds.ClaimsListed([]*v1alpha1.SandboxClaim{first}, 25)
			happened := func() bool {
				seen := r.finisher.unfinished.of(first.UID)
				return seen == nil || len(r.transactions()) > 0 || seen.snapshot().complete
			}
			r.stepUntil(0, happened)
			if tc.counts {
				checkEnd(t, r.ends(0), v1alpha1.ReasonAllReplicasClaimed, 1)
			}
			released := func(sb *v1alpha1.Sandbox) bool {
				return sb.Spec.ShutdownTime != nil && conditionOf(sb, v1alpha1.SandboxConditionVolumesMounted) == "False/Failed"
			}
			if tc.released {
				r.stepUntil(0, func() bool { return len(r.namesOf(released)) == 1 })
			}
			if !tc.counts && !tc.released && len(r.transactions()) != 0 {
				t.Errorf("writes %+v", r.last())
			}
			if n := r.calls.Load(); n != tc.calls {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// TestSetupsAreShared: one claim, and one namespace, has no more calls at a time than it may,
// and all of them are made in the end.
func TestSetupsAreShared(t *testing.T) {
	const n = 40
	var mu sync.Mutex
	var now, most int
	end := make(chan struct{})
	count := func(change int) int {
		mu.Lock()
		defer mu.Unlock()
		now += change
		most = max(most, now)
		return now
	}
	r := newRuntimes(t, n, func(context.Context, *v1alpha1.Sandbox) error {
		count(1)
		defer count(-1)
		<-end
		return nil
	})
	r.finisher.runtimes.Share = fairness.NewWorkShare(16, r.reconciler.Queue.Add)
	r.runs()
	r.options.MaxWaitingCreates = 0
	var uids []types.UID
	for i := range 4 {
		uid := types.UID(fmt.Sprint("claim-", i))
		uids = append(uids, uid)
		r.creates(ofReplicas(n/4), func(c *v1alpha1.SandboxClaim) { c.Name, c.UID = string(uid), uid })
	}
	r.stepUntil(0, func() bool { return count(0) == 8 })
	close(end)
	r.stepUntil(100*time.Millisecond, func() bool {
		return !slices.ContainsFunc(uids, func(uid types.UID) bool { return r.finisher.unfinished.of(uid) != nil })
	})
	if most != 8 || r.calls.Load() != n {
		t.Errorf("%d at a time, %d in all", most, r.calls.Load())
	}
	// A step ends a moment after its result is there.
	r.stepUntil(0, r.finisher.runtimes.Share.IsIdle)
}

// TestFiveHundredAtOnce of one claim.
func TestFiveHundredAtOnce(t *testing.T) {
	var begun sync.WaitGroup
	begun.Add(500)
	r := newRuntimes(t, 500, func(context.Context, *v1alpha1.Sandbox) error {
		begun.Done()
		begun.Wait()
		return nil
	}).runs()
	checkEnd(t, r.creates(ofReplicas(500)), v1alpha1.ReasonAllReplicasClaimed, 500)
	if n := len(r.transactions()); n > 12 {
		t.Errorf("%d transactions", n)
	}
}

// TestMountsWithoutRuntime: refused by its field where that is known, and else the end.
func TestMountsWithoutRuntime(t *testing.T) {
	r := newRuntimes(t, 0, succeeds).runs()
	r.set.Spec.Runtimes = nil
	r.stock(1)
	_, err := r.Create(t.Context(), r.asks(withMounts))
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || len(refused.Errors) != 1 || refused.Errors[0].Field != "spec.dynamicVolumesMount" || r.left("pool") != 1 || len(r.transactions()) != 0 {
		t.Errorf("left %d: %v", r.left("pool"), err)
	}
	r = newRuntimes(t, 0, succeeds).runs()
	r.set.Spec.Runtimes = nil
	if _, err := r.Create(t.Context(), r.asks(withMounts)); err == nil || len(r.transactions()) != 0 {
		t.Errorf("of a pool that is empty: %v", err)
	}
	r = newRuntimes(t, 0, succeeds).runs()
	r.options.MaxWaitingCreates = 0
	r.creates(withMounts)
	r.set.Spec.Runtimes = nil
	r.stock(1)
	checkEnd(t, r.ends(0), v1alpha1.ReasonMountFailed, 0)
	if r.left("pool") != 1 {
		t.Errorf("left %d", r.left("pool"))
	}
}

// TestPreviewCallsNothing: it shows what would be bound.
func TestPreviewCallsNothing(t *testing.T) {
	r := newRuntimes(t, 3, refuses).runs()
	claim, err := r.Preview(t.Context(), r.asks(ofReplicas(2)))
	if err != nil || claim.Status.ClaimedReplicas != 2 || r.calls.Load() != 0 || r.left("pool") != 3 || len(r.transactions()) != 0 {
		t.Errorf("%d calls, left %d, %v: %+v", r.calls.Load(), r.left("pool"), err, claim)
	}
}

// TestExpiredClaims: a lifecycle that is over binds nothing, and one that ends while the
// claim continues ends it.
func TestExpiredClaims(t *testing.T) {
	until := func(t time.Time) func(*v1alpha1.SandboxClaim) {
		return func(c *v1alpha1.SandboxClaim) {
			c.Spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: t}}
			c.Spec.OnShortage = v1alpha1.ShortageFail
		}
	}
	r := newRuntimes(t, 1, hangs).runs()
	checkEnd(t, r.creates(until(r.clock.Now())), v1alpha1.ReasonClaimExpired, 0)
	if r.left("pool") != 1 || r.calls.Load() != 0 {
		t.Errorf("left %d, %d calls", r.left("pool"), r.calls.Load())
	}
	r.options.MaxWaitingCreates = 0
	r.creates(until(r.clock.Now().Add(5*time.Second)), func(c *v1alpha1.SandboxClaim) { c.Name, c.UID = "second", "second" })
	claim := r.ends(time.Second)
	checkEnd(t, claim, v1alpha1.ReasonClaimExpired, 0)
	if !strings.HasPrefix(claim.Status.Message, "Claim expired. Claimed 0/1 sandboxes") {
		t.Errorf("says %q", claim.Status.Message)
	}
}
