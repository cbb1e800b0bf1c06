// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func n(count int, one func(string) builder, prefix string) []builder {
	var all []builder
	for i := range count {
		all = append(all, one(fmt.Sprintf("%s%03d", prefix, i)))
	}
	return all
}

func olderAvailable(name string) builder { return available(name).revision(older) }
func olderStarting(name string) builder  { return starting(name).revision(older) }

func takenUp(name string) builder {
	b := starting(name).phase(v1alpha1.SandboxPending)
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse}}
	return b
}

// counted is a set whose pool was counted since the user changed it.
func counted(set *v1alpha1.SandboxSet) { set.Status.ObservedGeneration = set.Generation }

func names(removed []*v1alpha1.Sandbox) []string {
	var all []string
	for _, sandbox := range removed {
		all = append(all, sandbox.Name)
	}
	return all
}

func TestPlan(t *testing.T) {
	type counts struct{ replicas, available, updated, updatedAvailable int32 }
	tests := map[string]struct {
		set     *v1alpha1.SandboxSet
		pool    []builder
		creates map[types.UID]string
		deletes []types.UID
		burst   burst
		cluster bool
		delays  delays

		create int
		more   bool
		remove []string // in order
		counts counts
	}{
		"empty set, empty pool": {set: makeSet(0)},
		"replicas unset": {
			set:    makeSet(0, func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = nil }),
			pool:   []builder{available("a")},
			remove: []string{"a"},
			counts: counts{1, 1, 1, 1},
		},
		"fill": {set: makeSet(5), create: 5},
		"steady": {
			set: makeSet(2), pool: []builder{available("a"), starting("b")},
			counts: counts{2, 1, 2, 1},
		},
		"claimed ones have no owner and are not even looked up": {
			set: makeSet(2), pool: []builder{available("a")},
			create: 1, counts: counts{1, 1, 1, 1},
		},
		"own creates that the cache does not show count": {
			set: makeSet(5), pool: []builder{available("a")},
			creates: map[types.UID]string{"x": current, "y": current},
			create:  2, counts: counts{3, 1, 3, 1},
		},
		"own creates that the cache shows already count once": {
			set: makeSet(3), pool: []builder{available("a"), starting("b")},
			creates: map[types.UID]string{"a": current, "b": current},
			create:  1, counts: counts{2, 1, 2, 1},
		},
		"own creates of an older revision": {
			set:     makeSet(2),
			creates: map[types.UID]string{"x": older, "y": current},
			counts:  counts{2, 0, 1, 0},
		},
		"own deletes that the cache does not show are gone": {
			set: makeSet(2), pool: []builder{available("a"), available("b")},
			deletes: []types.UID{"b"},
			create:  1, counts: counts{1, 1, 1, 1},
		},
		"deleting: neither counted nor deleted again": {
			set: makeSet(1), pool: []builder{available("a").deleting()}, create: 1,
		},
		"dead ones are removed and replaced": {
			set: makeSet(3),
			pool: []builder{
				available("failed").phase(v1alpha1.SandboxFailed),
				available("succeeded").phase(v1alpha1.SandboxSucceeded),
				available("terminating").phase(v1alpha1.SandboxTerminating),
				available("shutdown").shutdown(epoch),
				available("fine").shutdown(epoch.Add(time.Second)),
			},
			create: 2, remove: []string{"failed", "succeeded", "terminating", "shutdown"},
			counts: counts{1, 1, 1, 1},
		},
		"dead and kept for debugging": {
			set:    makeSet(1),
			pool:   []builder{starting("kept").phase(v1alpha1.SandboxFailed).label(v1alpha1.LabelReservedFailedSandbox, "true")},
			create: 1,
		},
		"dead and removed already": {
			set: makeSet(1), pool: []builder{starting("a").phase(v1alpha1.SandboxFailed)}, deletes: []types.UID{"a"},
			create: 1,
		},
		"locked: not counted, not deleted": {
			set:    makeSet(0),
			pool:   []builder{available("a").annotation(v1alpha1.AnnotationLock, "uuid"), starting("b").annotation(v1alpha1.AnnotationLock, "uuid")},
			counts: counts{0, 0, 0, 0},
		},
		"paused: not counted, not deleted, replaced within the scale limit": {
			set: makeSet(2, scaleLimit(intstr.FromInt32(1))),
			pool: []builder{
				available("a"), available("about-to-pause").paused(),
				starting("paused").phase(v1alpha1.SandboxPaused).paused(),
			},
			create: 1, counts: counts{1, 1, 1, 1},
		},
		"paused: left alone by a scale-down and an update": {
			set: makeSet(0), pool: []builder{available("a"), available("b").paused(), olderAvailable("o").paused()},
			remove: []string{"a"}, counts: counts{1, 1, 1, 1},
		},
		"resumed: counts again": {
			set: makeSet(1), pool: []builder{available("a"), starting("b").phase(v1alpha1.SandboxResuming)},
			remove: []string{"b"}, counts: counts{2, 1, 2, 1},
		},
		"paused and ended": {
			set: makeSet(0), pool: []builder{available("a").paused().phase(v1alpha1.SandboxFailed)},
			remove: []string{"a"},
		},
		"locked and of an older revision": {
			set:    makeSet(1),
			pool:   []builder{olderAvailable("a").annotation(v1alpha1.AnnotationLock, "uuid")},
			create: 1,
		},
		"locked by an interrupted scale-down of OpenKruise": {
			set: makeSet(1),
			pool: []builder{available("a").annotation(v1alpha1.AnnotationLock, "uuid").
				annotation(v1alpha1.AnnotationOwner, v1alpha1.OwnerScaleDown)},
			create: 1, remove: []string{"a"},
		},
		"ready without an address is not available": {
			set: makeSet(1), pool: []builder{available("a").ip("")},
			counts: counts{1, 0, 1, 0},
		},

		"scale limit, number": {
			set: makeSet(10, scaleLimit(intstr.FromInt32(3))), create: 3,
		},
		"scale limit, percent rounded up": {
			set: makeSet(10, scaleLimit(intstr.FromString("25%"))), create: 3,
		},
		"scale limit counts what is starting and on its way": {
			set:     makeSet(10, scaleLimit(intstr.FromInt32(4))),
			pool:    append(n(5, available, "a"), starting("b")),
			creates: map[types.UID]string{"x": current},
			create:  2, counts: counts{7, 5, 7, 5},
		},
		"scale limit used up": {
			set:    makeSet(10, scaleLimit(intstr.FromInt32(2))),
			pool:   n(3, starting, "s"),
			counts: counts{3, 0, 3, 0},
		},
		"scale limit 0 stops growth": {
			set: makeSet(10, scaleLimit(intstr.FromInt32(0))),
		},
		"scale limit 0% stops growth": {
			set: makeSet(10, scaleLimit(intstr.FromString("0%"))),
		},
		"no more than are taken up": {set: makeSet(1000), cluster: true, create: maxNotPickedUp, more: true},
		"as many as are taken up":   {set: makeSet(maxNotPickedUp), cluster: true, create: maxNotPickedUp},
		"no more than are taken up, of which some are": {
			set: makeSet(1000), cluster: true, pool: append(n(10, starting, "u"), n(300, takenUp, "s")...),
			creates: map[types.UID]string{"x": current, "y": current},
			create:  maxNotPickedUp - 12, more: true, counts: counts{312, 0, 312, 0},
		},
		"none before those are taken up that are there": {
			set: makeSet(1000), cluster: true, pool: n(maxNotPickedUp, starting, "u"),
			more: true, counts: counts{maxNotPickedUp, 0, maxNotPickedUp, 0},
		},
		"no more than the scale limit": {
			set: makeSet(1000, scaleLimit(intstr.FromInt32(200))), cluster: true, pool: n(150, takenUp, "s"),
			create: 50, counts: counts{150, 0, 150, 0},
		},
		"all at once without a cluster": {
			set: makeSet(1000), pool: n(maxNotPickedUp, starting, "u"),
			create: 1000 - maxNotPickedUp, counts: counts{maxNotPickedUp, 0, maxNotPickedUp, 0},
		},
		"scale limit above what is missing": {
			set: makeSet(2, scaleLimit(intstr.FromString("100%"))), pool: []builder{available("a")},
			create: 1, counts: counts{1, 1, 1, 1},
		},

		"scale down is not limited": {
			set:    makeSet(1, scaleLimit(intstr.FromInt32(0)), updateLimit(intstr.FromInt32(0))),
			pool:   n(4, available, "a"),
			remove: []string{"a000", "a001", "a002"}, counts: counts{4, 4, 4, 4},
		},
		"scale down order": {
			set: makeSet(0),
			pool: []builder{
				available("fresh-young").age(time.Minute),
				available("fresh-old").age(time.Hour),
				starting("not-ready").phase(v1alpha1.SandboxRunning).ready(false),
				available("recycled-1").recycled(1),
				available("recycled-2").recycled(2),
				starting("recycled-not-ready").phase(v1alpha1.SandboxRunning).recycled(2),
				starting("pending-young").phase(v1alpha1.SandboxPending).age(time.Minute),
				starting("empty-old").age(2 * time.Hour),
				olderAvailable("older-fresh"),
				olderAvailable("older-recycled").recycled(1),
				olderStarting("older-pending").phase(v1alpha1.SandboxPending),
			},
			remove: []string{
				"older-pending", "older-recycled", "older-fresh",
				"empty-old", "pending-young",
				"recycled-2", "recycled-not-ready", "recycled-1",
				"not-ready",
				"fresh-old", "fresh-young",
			},
			counts: counts{11, 6, 8, 4},
		},
		"scale down breaks ties by name": {
			set: makeSet(1), pool: []builder{available("c"), available("a"), available("b")},
			remove: []string{"a", "b"}, counts: counts{3, 3, 3, 3},
		},
		"no scale down before own creates are seen": {
			set:     makeSet(1),
			pool:    append(n(3, available, "a"), starting("f").phase(v1alpha1.SandboxFailed)),
			creates: map[types.UID]string{"x": current},
			remove:  []string{"f"}, counts: counts{4, 3, 4, 3},
		},

		"claims wait: made ahead of replicas": {
			set: makeSet(3), pool: []builder{available("a")}, burst: burst{wanted: 5, kept: 5},
			create: 7, counts: counts{1, 1, 1, 1},
		},
		"claims wait on a set of 0": {
			set: makeSet(0), burst: burst{wanted: 4, kept: 4}, create: 4,
		},
		"claims wait, and what they wait for is on its way": {
			set: makeSet(1), pool: n(3, starting, "s"), burst: burst{wanted: 2, kept: 2},
			counts: counts{3, 0, 3, 0},
		},
		"claims wait: the scale limit holds": {
			set: makeSet(4, scaleLimit(intstr.FromInt32(3))), pool: []builder{starting("s")},
			burst: burst{wanted: 6, kept: 6}, create: 2, counts: counts{1, 0, 1, 0},
		},
		"claims wait: a percentage is of all that is wanted": {
			set: makeSet(4, scaleLimit(intstr.FromString("50%"))), burst: burst{wanted: 6, kept: 6}, create: 5,
		},
		"claims wait on a set of 0: a percentage is of what they wait for": {
			set: makeSet(0, scaleLimit(intstr.FromString("50%"))), burst: burst{wanted: 6, kept: 6}, create: 3,
		},
		"claims wait on a held set": {
			set: makeSet(4, scaleLimit(intstr.FromInt32(0))), burst: burst{wanted: 6, kept: 6},
		},
		"claims have gone: what was made for them is spared": {
			set: makeSet(2), pool: n(5, available, "a"), burst: burst{kept: 3},
			counts: counts{5, 5, 5, 5},
		},
		"claims have gone: only what is beyond it is surplus": {
			set: makeSet(2), pool: append(n(4, available, "a"), starting("s")), burst: burst{wanted: 1, kept: 2},
			remove: []string{"s"}, counts: counts{5, 4, 5, 4},
		},
		"claims have gone: none are made in place of those that were claimed": {
			set: makeSet(2), pool: n(3, available, "a"), burst: burst{kept: 3},
			counts: counts{3, 3, 3, 3},
		},
		"claims have gone, and the time is over": {
			set: makeSet(1), pool: n(3, available, "a"),
			remove: []string{"a000", "a001"}, counts: counts{3, 3, 3, 3},
		},
		"rolling update of what is spared": {
			set: makeSet(5), pool: n(7, olderAvailable, "o"), burst: burst{kept: 2},
			remove: []string{"o000", "o001", "o002"}, counts: counts{7, 7, 0, 0},
		},

		"sandboxes fail: those that have ended are removed, and none created": {
			set: makeSet(3), pool: []builder{available("a"), starting("f").phase(v1alpha1.SandboxFailed)},
			delays: delays{backoff: time.Second}, remove: []string{"f"}, counts: counts{1, 1, 1, 1},
		},
		"claims run: nothing is done": {
			set: makeSet(3, counted), pool: []builder{available("a"), olderAvailable("o"), starting("f").phase(v1alpha1.SandboxFailed)},
			delays: delays{refill: time.Second}, counts: counts{2, 2, 1, 1},
		},
		"claims run, and the user has changed the set": {
			set: makeSet(3), pool: []builder{available("a"), starting("f").phase(v1alpha1.SandboxFailed)},
			delays: delays{refill: time.Second}, create: 2, remove: []string{"f"}, counts: counts{1, 1, 1, 1},
		},

		"rolling update within the default budget": {
			set: makeSet(10), pool: n(10, olderAvailable, "o"),
			remove: []string{"o000", "o001"}, counts: counts{10, 10, 0, 0},
		},
		"rolling update, oldest first": {
			set:    makeSet(5),
			pool:   append(n(4, olderAvailable, "o"), olderAvailable("z").age(2*time.Hour)),
			remove: []string{"z"}, counts: counts{5, 5, 0, 0},
		},
		"rolling update waits for the replacements": {
			set: makeSet(10), pool: append(n(8, olderAvailable, "o"), n(2, starting, "s")...),
			counts: counts{10, 8, 2, 0},
		},
		"rolling update continues with the next": {
			set: makeSet(10), pool: slices.Concat(n(8, olderAvailable, "o"), n(1, starting, "s"), n(1, available, "a")),
			remove: []string{"o000"}, counts: counts{10, 9, 2, 1},
		},
		"rolling update removes the starting ones at once": {
			set: makeSet(10), pool: append(n(7, olderAvailable, "o"), n(3, olderStarting, "s")...),
			remove: []string{"s000", "s001", "s002"}, counts: counts{10, 7, 0, 0},
		},
		"rolling update removes the starting ones even if some are missing": {
			// Else a template that never gets ready would hold the scale limit for ever.
			set:    makeSet(10, scaleLimit(intstr.FromInt32(2))),
			pool:   append(n(5, available, "a"), n(2, olderStarting, "s")...),
			remove: []string{"s000", "s001"}, counts: counts{7, 5, 5, 5},
		},
		"rolling update keeps the floor while claims take": {
			set: makeSet(10), pool: n(7, olderAvailable, "o"), create: 3,
			counts: counts{7, 7, 0, 0},
		},
		"rolling update and refill at once": {
			set: makeSet(10, updateLimit(intstr.FromInt32(4))), pool: n(8, olderAvailable, "o"),
			create: 2, remove: []string{"o000", "o001"}, counts: counts{8, 8, 0, 0},
		},
		"rolling update waits for own creates": {
			set: makeSet(10), pool: append(n(9, olderAvailable, "o"), olderStarting("s")),
			creates: map[types.UID]string{"x": current},
			counts:  counts{11, 9, 1, 0},
		},
		"update limit 0 keeps the available ones": {
			set:    makeSet(3, updateLimit(intstr.FromInt32(0))),
			pool:   append(n(2, olderAvailable, "o"), olderStarting("s")),
			remove: []string{"s"}, counts: counts{3, 2, 0, 0},
		},
		"update limit 100%": {
			set:    makeSet(3, updateLimit(intstr.FromString("100%"))),
			pool:   n(3, olderAvailable, "o"),
			remove: []string{"o000", "o001", "o002"}, counts: counts{3, 3, 0, 0},
		},
		"update limit above replicas": {
			set:    makeSet(2, updateLimit(intstr.FromInt32(50))),
			pool:   n(2, olderAvailable, "o"),
			remove: []string{"o000", "o001"}, counts: counts{2, 2, 0, 0},
		},
		"update limit, percent rounded up": {
			set: makeSet(3, updateLimit(intstr.FromString("1%"))), pool: n(3, olderAvailable, "o"),
			remove: []string{"o000"}, counts: counts{3, 3, 0, 0},
		},
		"without a revision label is older": {
			set: makeSet(1), pool: []builder{available("a").revision("")},
			remove: []string{"a"}, counts: counts{1, 1, 0, 0},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &observation{
				set: test.set, target: targetOf(current), pool: pool{sandboxes(test.pool...), test.creates, sets.New(test.deletes...)},
				burst: test.burst, hasCluster: test.cluster, now: epoch,
			}
			c := o.count()
			got, err := o.plan(&c, test.delays)
			if err != nil {
				t.Fatal(err)
			}
			if got.create != test.create {
				t.Errorf("create %d, want %d", got.create, test.create)
			}
			if got.hasMore != test.more {
				t.Errorf("more %t, want %t", got.hasMore, test.more)
			}
			if diff := cmp.Diff(test.remove, names(got.remove), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("remove (-want +got):\n%s", diff)
			}
			s := builderOf(o).build()
			if got := (counts{s.Replicas, s.AvailableReplicas, s.UpdatedReplicas, s.UpdatedAvailableReplicas}); got != test.counts {
				t.Errorf("counts %+v, want %+v", got, test.counts)
			}
		})
	}
}

func TestPlanRefusesMalformedLimits(t *testing.T) {
	for name, set := range map[string]*v1alpha1.SandboxSet{
		"scale":  makeSet(5, scaleLimit(intstr.FromString("many"))),
		"update": makeSet(0, updateLimit(intstr.FromString("5"))),
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{set: set, target: targetOf(current), now: epoch, pool: pool{sandboxes: sandboxes(olderStarting("o"))}}
			if name == "update" {
				set.Spec.Replicas = new(int32(1))
			}
			c := o.count()
			if p, err := o.plan(&c, delays{}); err == nil {
				t.Errorf("planned %+v", p)
			}
		})
	}
}
