// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a store: a set with a sandbox in its pool, a claim that is served, one that
// waits for its second sandbox, which is starting, and a sandbox that has outlived its claim.
type world struct {
	set                           *v1alpha1.SandboxSet
	done, going                   *v1alpha1.SandboxClaim
	free, taken, starting, orphan *v1alpha1.Sandbox
	// partial is State.Partial.
	partial bool
}

func newWorld() *world {
	w := &world{
		set:      &v1alpha1.SandboxSet{ObjectMeta: named("pool")},
		done:     newClaim("done", 1),
		going:    newClaim("going", 2),
		free:     &v1alpha1.Sandbox{ObjectMeta: named("free")},
		taken:    newSandbox("taken"),
		starting: newSandbox("starting"),
		orphan:   newSandbox("orphan"),
	}
	w.free.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))}
	w.done.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	bind(w.taken, w.done)
	list(w.done, w.taken)
	bind(w.starting, w.going)
	w.starting.Annotations[v1alpha1.AnnotationStarting] = "true"
	w.starting.OwnerReferences = []metav1.OwnerReference{*v1alpha1.OwnedByClaim(w.going)}
	bind(w.orphan, newClaim("gone", 1))
	return w
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}
}

func newClaim(name string, replicas int32) *v1alpha1.SandboxClaim {
	return &v1alpha1.SandboxClaim{
		ObjectMeta: named(name),
		Spec:       v1alpha1.SandboxClaimSpec{Replicas: &replicas, ClaimTimeout: &metav1.Duration{Duration: time.Minute}},
		Status:     v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseClaiming, ClaimStartTime: &metav1.Time{Time: now}},
	}
}

func newSandbox(name string) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{ObjectMeta: named(name)}
}

// bind makes a sandbox a claim's.
func bind(sb *v1alpha1.Sandbox, claim *v1alpha1.SandboxClaim) {
	sb.OwnerReferences = nil
	sb.Labels = map[string]string{v1alpha1.LabelClaimName: claim.Name}
	sb.Annotations = map[string]string{v1alpha1.AnnotationOwner: string(claim.UID), v1alpha1.AnnotationLock: "lock"}
}

// list makes a claim count a sandbox.
func list(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) {
	claim.Status.ClaimedReplicas++
	claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: sb.Name, UID: sb.UID})
}

// judged is what is found, as "level check: objects".
func (w *world) judged(at time.Time) []string {
	s := &State{Partial: w.partial}
	if w.set != nil {
		s.AddSet(w.set)
	}
	for _, claim := range []*v1alpha1.SandboxClaim{w.done, w.going} {
		if claim != nil {
			s.AddClaim(claim)
		}
	}
	for _, sb := range []*v1alpha1.Sandbox{w.free, w.taken, w.starting, w.orphan} {
		s.AddSandbox(sb)
	}
	found := []string{}
	s.Judge(at, func(f findings.Finding) {
		if f.Message == "" || f.Action == "" {
			f.Check += " that says nothing"
		}
		found = append(found, string(f.Level)+" "+f.Check+": "+strings.ReplaceAll(strings.Join(f.Objects, ", "), "team/", ""))
	})
	slices.Sort(found)
	return found
}

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		at     time.Duration
		want   []string
	}{
		"as the programs leave it": {},
		"a claim whose sandbox was deleted": {
			change: func(w *world) { w.taken = newSandbox("other") },
		},
		"a claim whose sandbox was deleted and another made of its name": {
			change: func(w *world) { w.taken = newSandbox("taken"); w.taken.UID = "another" },
		},
		"a sandbox that went back to its pool, and to another claim": {
			change: func(w *world) {
				w.taken.Status.RecycledCount = 1
				bind(w.taken, w.going)
				list(w.going, w.taken)
			},
		},
		"a sandbox that is on its way back to its pool": {
			change: func(w *world) {
				w.taken.Labels, w.taken.Annotations, w.taken.OwnerReferences = nil, nil, w.free.OwnerReferences
				w.taken.Status.Phase = v1alpha1.SandboxRecycling
			},
		},
		"a sandbox that failed and is kept": {
			change: func(w *world) {
				w.going.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
				delete(w.starting.Annotations, v1alpha1.AnnotationStarting)
				w.starting.Labels[v1alpha1.LabelReservedFailedSandbox] = "true"
			},
		},
		"a sandbox that was let go": {
			change: func(w *world) {
				w.starting.Annotations = map[string]string{v1alpha1.AnnotationLock: "lock"}
				w.starting.OwnerReferences, w.starting.Spec.ShutdownTime = nil, &metav1.Time{Time: now}
			},
		},
		"a sandbox that its set is about to delete": {
			change: func(w *world) {
				w.free.Annotations = map[string]string{v1alpha1.AnnotationOwner: v1alpha1.OwnerScaleDown, v1alpha1.AnnotationLock: "lock"}
			},
		},

		"two claims that list one sandbox": {
			change: func(w *world) { list(w.going, w.taken) },
			want: []string{
				"Error ListedByTwo: Sandbox taken, SandboxClaim done, SandboxClaim going",
				"Error ListedNotBound: SandboxClaim going, Sandbox taken",
			},
		},
		"a claim that lists what is in a pool": {
			change: func(w *world) { list(w.going, w.free) },
			want:   []string{"Error ListedNotBound: SandboxClaim going, Sandbox free"},
		},
		"the same, of a version that listed no UIDs": {
			change: func(w *world) { list(w.going, w.free); w.going.Status.Sandboxes[0].UID = "" },
			want:   []string{"Warning ListedNotBound: SandboxClaim going, Sandbox free"},
		},
		"a claim that lists a sandbox twice": {
			change: func(w *world) { w.done.Spec.Replicas = new(int32(2)); list(w.done, w.taken) },
			want:   []string{"Error ListedTwice: SandboxClaim done"},
		},
		"a sandbox of a claim that does not list it": {
			change: func(w *world) { w.done.Status.Sandboxes, w.done.Status.ClaimedReplicas = nil, 0 },
			want:   []string{"Error BoundNotListed: SandboxClaim done, Sandbox taken"},
		},
		"a claim that counts what is starting": {
			change: func(w *world) { list(w.going, w.starting) },
			want:   []string{"Error CountedAndStarting: SandboxClaim going, Sandbox starting"},
		},
		"a claim that has ended with what is starting": {
			change: func(w *world) { w.going.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted },
			want:   []string{"Error CompletedAndStarting: SandboxClaim going, Sandbox starting"},
		},
		"a claim that says more than it lists": {
			change: func(w *world) { w.going.Status.ClaimedReplicas = 1 },
			want:   []string{"Warning CountOfList: SandboxClaim going"},
		},
		"a claim that says less than it lists": {
			change: func(w *world) { w.done.Status.ClaimedReplicas = 0 },
			want:   []string{"Error CountOfList: SandboxClaim done"},
		},
		"a claim with more than it asked for": {
			change: func(w *world) {
				w.done.Spec.Replicas, w.done.Status.ClaimedReplicas = new(int32(1)), 2
				bind(w.orphan, w.done)
				list(w.done, w.orphan)
			},
			want: []string{
				"Error MoreThanAsked: SandboxClaim done", // by its sandboxes
				"Error MoreThanAsked: SandboxClaim done", // and by what it says
				"Warning CountOfList: SandboxClaim done",
			},
		},
		"a part of all or nothing": {
			change: func(w *world) {
				w.done.Spec.Allocation, w.done.Spec.Replicas = v1alpha1.AllocationAllOrNothing, new(int32(2))
			},
			want: []string{"Error AllOrNothing: SandboxClaim done"},
		},
		"a sandbox that is bound in a pool": {
			change: func(w *world) { w.taken.OwnerReferences = w.free.OwnerReferences },
			want:   []string{"Error BoundInPool: Sandbox taken"},
		},
		"a sandbox that is bound and not locked": {
			change: func(w *world) { delete(w.taken.Annotations, v1alpha1.AnnotationLock) },
			want:   []string{"Error BoundWithoutLock: Sandbox taken"},
		},
		"a sandbox that is locked in its pool": {
			change: func(w *world) { w.free.Annotations = map[string]string{v1alpha1.AnnotationLock: "lock"} },
			want:   []string{"Error LockedWithoutClaim: Sandbox free"},
		},
		"a sandbox that was let go and is kept": {
			change: func(w *world) { w.orphan.Annotations = map[string]string{v1alpha1.AnnotationLock: "lock"} },
			want:   []string{"Warning LockedWithoutClaim: Sandbox orphan"},
		},
		"a sandbox that is starting for no claim": {
			change: func(w *world) { w.free.Annotations = map[string]string{v1alpha1.AnnotationStarting: "true"} },
			want:   []string{"Error StartingWithoutClaim: Sandbox free"},
		},
		"a sandbox that is starting for a claim that is gone": {
			change: func(w *world) { w.going = nil },
			want:   []string{"Warning ClaimGone: Sandbox starting"},
		},
		"a pool without its set": {
			change: func(w *world) { w.set = nil },
			want:   []string{"Warning OwnerGone: Sandbox free"},
		},
		"what is gone is not judged where not all was read": {
			change: func(w *world) { w.set, w.going, w.partial = nil, nil, true },
		},
		"a sandbox that names another claim than it has the UID of": {
			change: func(w *world) { w.taken.Labels[v1alpha1.LabelClaimName] = "going" },
			want:   []string{"Error BoundToOther: Sandbox taken, SandboxClaim done"},
		},
		"a sandbox of a claim in another namespace": {
			change: func(w *world) { w.orphan.Namespace = "other"; bind(w.orphan, w.done) },
			want:   []string{"Error BoundToOther: Sandbox other/orphan, SandboxClaim done"},
		},
		"two objects with one UID": {
			change: func(w *world) { w.orphan.UID = w.taken.UID },
			want:   []string{"Error UniqueUID: Sandbox taken, Sandbox orphan"},
		},
		"a claim that continues": {at: 11 * time.Minute},
		"a claim that should have ended": {
			at:   11*time.Minute + time.Second,
			want: []string{"Warning Overdue: SandboxClaim going"},
		},
		"a claim of agent-sandbox never should": {
			at: time.Hour, change: func(w *world) {
				w.going.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
			},
		},
		"a claim of agent-sandbox with two sandboxes": {
			change: func(w *world) {
				w.done.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
				bind(w.orphan, w.done)
			},
			want: []string{"Error BoundNotListed: SandboxClaim done, Sandbox orphan", "Error MoreThanAsked: SandboxClaim done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if test.change != nil {
				test.change(w)
			}
			want := append([]string{}, test.want...)
			if diff := cmp.Diff(want, w.judged(now.Add(test.at))); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// What users may write at any length is neither kept nor told at that length.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	sb := newSandbox("free")
	isController := true
	sb.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: long, UID: types.UID(long), Controller: &isController,
	}}
	held := newSandbox("held")
	held.Annotations = map[string]string{v1alpha1.AnnotationOwner: long, v1alpha1.AnnotationStarting: "true"}
	var s State
	s.AddSandbox(sb)
	s.AddSandbox(held)
	for _, kept := range s.sandboxes {
		if got := len(kept.controller.Name) + len(kept.controller.UID) + len(kept.claim.uid); got == 0 || got > 600 {
			t.Errorf("of %s %d bytes are kept", &kept, got)
		}
	}
	told := 0
	s.Judge(now, func(f findings.Finding) {
		if told++; len(f.Message) > 1000 {
			t.Errorf("%s tells %d bytes", f.Check, len(f.Message))
		}
	})
	if told < 2 {
		t.Errorf("%d findings, want one of each sandbox", told)
	}
}
