// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/nodes"
)

const replaceAfter = DefaultNodeTimeout

func (b builder) node(name string) builder { b.Status.NodeName = name; return b }

// TestPlanOfUnavailableNodes: what is on nodes that have taken no pods for long enough is replaced,
// as far as updateStrategy.maxUnavailable lets it.
func TestPlanOfUnavailableNodes(t *testing.T) {
	good, bad := func(name string) builder { return available(name).node("good") }, func(name string) builder { return available(name).node("bad") }
	since := func(d time.Duration) map[string]time.Time { return map[string]time.Time{"bad": epoch.Add(-d)} }
	half := updateLimit(intstr.FromString("50%"))
	tests := map[string]struct {
		set   *v1alpha1.SandboxSet
		pool  []builder
		since map[string]time.Time
		most  bool

		mostUnusableAt time.Time

		remove []string
		after  time.Duration
	}{
		"all nodes take pods": {set: makeSet(4), pool: n(4, bad, "a")},
		"for a moment only": {
			set: makeSet(4), pool: n(4, bad, "a"), since: since(replaceAfter - time.Second), after: time.Second,
		},
		"for long":      {set: makeSet(4, half), pool: append(n(1, good, "a"), n(3, bad, "b")...), since: since(replaceAfter), remove: []string{"b000", "b001"}},
		"by default":    {set: makeSet(10), pool: n(10, bad, "a"), since: since(replaceAfter), remove: []string{"a000", "a001"}},
		"OnReplenish":   {set: makeSet(10, updateType(v1alpha1.SetUpdateOnReplenish)), pool: n(10, bad, "a"), since: since(replaceAfter), remove: []string{"a000", "a001"}},
		"Recreate":      {set: makeSet(10, updateType(v1alpha1.SetUpdateRecreate)), pool: labelled(n(10, bad, "a")), since: since(replaceAfter), remove: []string{"a000", "a001"}},
		"at the floor":  {set: makeSet(4, half), pool: append(n(2, starting, "a"), n(2, bad, "b")...), since: since(replaceAfter)},
		"not available": {set: makeSet(2, updateLimit(intstr.FromInt32(0))), pool: []builder{bad("a").ready(false), good("b")}, since: since(replaceAfter), remove: []string{"a"}},
		"claims may have one that is locked": {
			set: makeSet(1), pool: []builder{good("a"), bad("b").annotation(v1alpha1.AnnotationLock, "l")}, since: since(replaceAfter),
		},
		"made on it afterwards": {
			set:   makeSet(4, half),
			pool:  []builder{bad("a").age(time.Minute), bad("b").age(2*time.Minute - replaceAfter/2), bad("c").age(2*time.Minute - replaceAfter/3), good("d")},
			since: since(2 * time.Minute), remove: []string{"c"},
		},
		"most took none a moment ago": {
			set: makeSet(4, half), pool: n(4, bad, "a"), since: since(time.Hour), mostUnusableAt: epoch.Add(-time.Second), after: replaceAfter - time.Second,
		},
		"most took none before": {
			set: makeSet(4, half), pool: n(4, bad, "a"), since: since(time.Hour), mostUnusableAt: epoch.Add(-replaceAfter), remove: []string{"a000", "a001"},
		},
		"most nodes take none": {set: makeSet(4, half), pool: n(4, bad, "a"), since: since(replaceAfter), most: true, after: replaceAfter},
		"a roll-out comes first": {
			set: makeSet(4, half), pool: append(n(1, olderAvailable, "a"), n(3, bad, "b")...), since: since(replaceAfter), remove: []string{"a000"},
		},
		"too many": {set: makeSet(3), pool: append(n(3, good, "a"), n(1, bad, "b")...), since: since(0), remove: []string{"b000"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &observation{set: test.set, target: targetOf(current), now: epoch}
			o.pool.sandboxes = sandboxes(test.pool...)
			o.nodes = unavailableNodes{bySandbox: map[types.UID]unavailableNode{}, mostUnavailable: test.most, mostUnavailableAt: test.mostUnusableAt, timeout: replaceAfter}
			for _, sandbox := range o.pool.sandboxes {
				if since, found := test.since[sandbox.Status.NodeName]; found {
					o.nodes.bySandbox[sandbox.UID] = unavailableNode{since: since, noticed: since}
				}
			}
			c := o.count()
			p, err := o.plan(&c, delays{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.remove, names(p.remove), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("remove (-want +got):\n%s", diff)
			}
			if p.requeueAfter != test.after {
				t.Errorf("again after %s, want %s", p.requeueAfter, test.after)
			}
			for _, sandbox := range p.remove {
				if reason := p.reasonFor(sandbox, epoch); (reason == removalNodeUnavailable) != p.onUnavailableNodes.Has(sandbox.UID) {
					t.Errorf("%s is removed as %s", sandbox.Name, reason)
				}
			}
		})
	}
}

// labelled are sandboxes of the template of makeSet.
func labelled(pool []builder) []builder {
	for _, b := range pool {
		b.label(v1alpha1.LabelSandboxTemplate, "pool")
	}
	return pool
}

// onNodes finds sandboxes by node.
type onNodes map[string][]*v1alpha1.Sandbox

func (o onNodes) OnNode(name string) ([]*v1alpha1.Sandbox, error) { return o[name], nil }

// takes are the states of nodes by whether they take pods.
func takes(pods map[string]bool) map[string]nodes.State {
	states := map[string]nodes.State{}
	for name, takesPods := range pods {
		states[name] = nodes.State{TakesPods: takesPods}
	}
	return states
}

// TestNodeStates: a set is woken for a node when that ceases to take pods, not at each
// change of a node that takes none, and the time counts anew once it has taken some.
func TestNodeStates(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(epoch)
	one := available("a").node("n1").Sandbox
	s := newNodeStates(clk, &indexes{nodes: onNodes{"n1": {one}}}, replaceAfter)
	q := &enqueuedSets{}
	at := func(passed time.Duration) { clk.SetTime(epoch.Add(passed)) }
	expect := func(what string, woken int, most bool, since time.Duration) {
		t.Helper()
		want := map[types.UID]unavailableNode{}
		if since >= 0 {
			want[one.UID] = unavailableNode{since: epoch.Add(since), noticed: epoch.Add(since)}
		}
		got := s.unavailableNodesOf([]*v1alpha1.Sandbox{one, available("b").node("n2").Sandbox, starting("c").Sandbox})
		if diff := cmp.Diff(want, got.bySandbox, cmpopts.EquateEmpty(), cmp.AllowUnexported(unavailableNode{})); diff != "" || got.mostUnavailable != most {
			t.Errorf("%s: most %t, want %t; lost (-want +got):\n%s", what, got.mostUnavailable, most, diff)
		}
		if len(q.sets) != woken {
			t.Errorf("%s: woken %q, want %d", what, q.sets, woken)
		}
	}

	expect("before a list", 0, false, -1)
	s.NodesListed(takes(map[string]bool{"n1": false, "n2": true, "n3": true}))
	expect("a list before the start", 0, false, 0)
	s.queue = q
	at(time.Second)
	s.NodeChanged("n1", nodes.State{})
	s.NodesListed(takes(map[string]bool{"n1": false, "n2": true, "n3": true}))
	expect("nothing new", 0, false, 0)
	s.NodeChanged("n1", nodes.State{TakesPods: true})
	expect("it comes back", 0, false, -1)
	at(2 * time.Second)
	s.NodeChanged("n1", nodes.State{})
	expect("it goes again", 1, false, 2*time.Second)
	at(3 * time.Second)
	s.NodeDeleted("n1")
	expect("it is gone", 1, false, 2*time.Second)
	s.NodeDeleted("n3")
	s.NodeChanged("n4", nodes.State{})
	s.NodeChanged("n5", nodes.State{})
	expect("most of what is left", 1, true, 2*time.Second)
	at(4 * time.Second)
	s.NodesListed(takes(map[string]bool{"n2": true, "n4": true, "n5": true}))
	expect("they come back", 1, false, 2*time.Second)
	if got := s.unavailableNodesOf(nil).mostUnavailableAt; !got.Equal(epoch.Add(4 * time.Second)) {
		t.Errorf("most nodes took none until %s", got)
	}
	at(4*time.Second + rememberGone)
	s.NodesListed(takes(map[string]bool{"n2": true}))
	expect("gone for long", 1, false, -1)
	s.NodesListed(takes(map[string]bool{}))
	if _, found := s.unavailable["n2"]; !found || s.available != 0 || !s.unavailableNodesOf(nil).mostUnavailable {
		t.Errorf("without nodes %v are lost, and %d take pods", s.unavailable, s.available)
	}
	s.NodesUnknown()
	expect("nothing may be read", 1, false, -1)
	s.NodesListed(map[string]nodes.State{"n1": {Since: epoch}, "n2": {TakesPods: true}})
	if got := s.unavailableNodesOf([]*v1alpha1.Sandbox{one}).bySandbox[one.UID]; !got.since.Equal(epoch) || !got.noticed.Equal(clk.Now()) {
		t.Errorf("a node that tells since when it takes no pods: %v", got)
	}
	s.NodesUnknown()
	s.NodesListed(map[string]nodes.State{"n1": {Since: clk.Now().Add(time.Hour)}, "n2": {TakesPods: true}})
	if got := s.unavailableNodesOf([]*v1alpha1.Sandbox{one}).bySandbox[one.UID]; !got.since.Equal(clk.Now()) {
		t.Errorf("a node whose clock is ahead: %v", got)
	}
}

// TestNodeGoneUntilTimeout: a node that is gone is remembered until the sandboxes on it may be replaced.
func TestNodeGoneUntilTimeout(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(epoch)
	s := newNodeStates(clk, &indexes{}, 2*rememberGone)
	s.NodesListed(takes(map[string]bool{"n1": true, "n2": true, "n3": true}))
	s.NodeDeleted("n1")
	clk.SetTime(epoch.Add(2*rememberGone + time.Second))
	s.NodeDeleted("n2")
	if _, found := s.unavailable["n1"]; !found {
		t.Error("it is forgotten before its sandboxes are replaced")
	}
}

// testLostNode: the pool of a cordoned node moves to another, step by step, and not while it
// may come back.
func testLostNode(t *testing.T, f *fixture) {
	f.createSet(10) // of which two may be missing
	f.reconcile()
	place := func(node string, sandboxes ...*v1alpha1.Sandbox) {
		for _, sandbox := range sandboxes {
			builder{sandbox}.node(node)
		}
		f.start(sandboxes...)
		f.sync()
	}
	pooled := f.pooled()
	place("n1", pooled[:5]...)
	place("n2", pooled[5:]...)
	f.reconcile()

	f.c.nodes.NodesListed(takes(map[string]bool{"n1": true, "n2": true, "n3": true}))
	f.pass(time.Minute)
	f.c.nodes.NodeChanged("n1", nodes.State{})
	if after := f.reconcile().RequeueAfter; after <= 0 || after > replaceAfter {
		t.Errorf("reconciles again after %s", after)
	}
	f.wantPooled(10)
	f.claim(f.pooled()[slices.IndexFunc(f.pooled(), func(s *v1alpha1.Sandbox) bool { return s.Status.NodeName == "n1" })])
	f.sync()
	f.pass(replaceAfter)
	for round := 0; ; round++ {
		f.reconcile()
		f.sync()
		var fresh []*v1alpha1.Sandbox
		left, ready := 0, 0
		for _, sandbox := range f.pooled() {
			switch sandbox.Status.NodeName {
			case "n1":
				left++
				ready++
			case "n2":
				ready++
			default:
				fresh = append(fresh, sandbox)
			}
		}
		if ready < 8 {
			t.Fatalf("round %d: %d are available, of which %d are on the lost node", round, ready, left)
		}
		if left == 0 && len(fresh) == 0 {
			break
		}
		if round > 20 {
			t.Fatalf("%d are on the lost node still", left)
		}
		place("n2", fresh...)
		f.pass(time.Second)
	}
	f.wantPooled(10)
	claimed := 0
	for _, sandbox := range f.all() {
		if sandbox.Status.NodeName == "n1" {
			claimed++
		}
	}
	if claimed != 1 {
		t.Errorf("%d sandboxes are on the lost node, want the one that a claim has: %q", claimed, names(f.all()))
	}
}
