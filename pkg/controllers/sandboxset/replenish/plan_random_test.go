// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Whatever the pool looks like, a plan keeps these rules.
func TestPlanProperties(t *testing.T) {
	for seed := range uint64(5000) {
		o := randomObservation(rand.New(rand.NewPCG(seed, 1)))
		c := o.count()
		p, err := o.plan(&c, delays{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if problem := brokenRule(o, &c, p); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
}

func brokenRule(o *observation, c *poolCounts, p plan) string {
	replicas := o.replicas()
	if c.unseenCreates < 0 || c.updated() > c.unused() {
		return fmt.Sprintf("impossible counts %+v", *c)
	}
	if p.create < 0 || c.unused()+p.create > max(replicas+o.burst.wanted, c.unused()) {
		return fmt.Sprintf("creates %d with %d of %d+%d there", p.create, c.unused(), replicas, o.burst.wanted)
	}
	if limit := o.set.Spec.ScaleStrategy.MaxUnavailable; limit != nil {
		maxUnavailable, err := scaled(limit, replicas+o.burst.wanted)
		b := &c.blocked
		if room := max(maxUnavailable-b.total()-c.unseenCreates, 0); err != nil || p.create > room {
			return fmt.Sprintf("creates %d with room for %d, %v", p.create, room, err)
		}
	}
	removed := sets.Set[types.UID]{}
	useful, usefulAvailable := 0, 0
	for _, sandbox := range p.remove {
		switch {
		case removed.Has(sandbox.UID):
			return "removes " + sandbox.Name + " twice"
		case o.pool.expectedDeletes.Has(sandbox.UID), sandbox.DeletionTimestamp != nil:
			return "removes " + sandbox.Name + ", which is going"
		}
		removed.Insert(sandbox.UID)
		switch stateInPool(sandbox, o.now) {
		case stateNone:
			return "removes " + sandbox.Name + ", which is not to be touched"
		case stateAvailable:
			usefulAvailable++
			useful++
		case stateCreating:
			useful++
		}
	}
	for _, sandbox := range c.ended {
		if !removed.Has(sandbox.UID) {
			return "keeps " + sandbox.Name + ", which is dead"
		}
	}
	if useful > 0 && c.unseenCreates > 0 {
		return "removes useful ones before own creates are seen"
	}
	if surplus := c.unused() - replicas - o.burst.kept; surplus > 0 && c.unseenCreates == 0 {
		if useful != surplus || p.create != 0 {
			return fmt.Sprintf("with a surplus of %d removes %d and creates %d", surplus, useful, p.create)
		}
		return ""
	}
	// Not a scale-down: the floor holds, or nothing available is removed.
	limit, err := scaled(o.set.Spec.UpdateStrategy.MaxUnavailable, replicas)
	if err != nil {
		return err.Error()
	}
	if left := len(c.available) - usefulAvailable; usefulAvailable > 0 && left < replicas-limit {
		return fmt.Sprintf("leaves %d available, the floor is %d", left, replicas-limit)
	}
	for _, sandbox := range p.remove {
		node, onLost := o.nodes.bySandbox[sandbox.UID]
		switch {
		case p.onUnavailableNodes.Has(sandbox.UID):
			if !onLost || o.nodes.mostUnavailable || o.now.Sub(node.noticed) < replaceAfter || sandbox.CreationTimestamp.Sub(node.since) >= replaceAfter/2 {
				return "replaces " + sandbox.Name + ", whose node is not lost"
			}
		case stateInPool(sandbox, o.now) != stateEnded && revisionOf(sandbox) == o.target.revision:
			return "replaces " + sandbox.Name + ", which is up to date"
		}
	}
	return ""
}

func randomObservation(r *rand.Rand) *observation {
	limit := func() intstr.IntOrString {
		if r.IntN(2) == 0 {
			return intstr.FromInt32(r.Int32N(8))
		}
		return intstr.FromString(fmt.Sprintf("%d%%", r.IntN(130)))
	}
	set := makeSet(r.Int32N(20), updateLimit(limit()))
	if r.IntN(2) == 0 {
		scaleLimit(limit())(set)
	}
	o := &observation{
		set: set, target: targetOf(current), now: epoch,
		pool: pool{expectedCreates: map[types.UID]string{}, expectedDeletes: sets.Set[types.UID]{}},
	}
	if r.IntN(3) == 0 {
		o.burst.wanted = r.IntN(6)
		o.burst.kept = o.burst.wanted + r.IntN(6)
	}
	phases := []v1alpha1.SandboxPhase{
		"", v1alpha1.SandboxPending, v1alpha1.SandboxRunning, v1alpha1.SandboxRunning, v1alpha1.SandboxRunning,
		v1alpha1.SandboxFailed, v1alpha1.SandboxRecycling,
	}
	one := func(in int) bool { return r.IntN(in) == 0 }
	o.nodes = unavailableNodes{bySandbox: map[types.UID]unavailableNode{}, mostUnavailable: one(4), timeout: replaceAfter}
	for i := range r.IntN(30) {
		b := starting(fmt.Sprintf("s%02d", i)).phase(phases[r.IntN(len(phases))]).
			age(time.Duration(r.IntN(5)) * time.Minute).recycled(r.Int32N(3))
		if !one(4) {
			b = b.ready(true).ip("127.0.0.9")
		}
		if one(3) {
			b = b.revision(older)
		}
		if one(12) {
			b = b.annotation(v1alpha1.AnnotationLock, "l")
		}
		if one(12) {
			b = b.deleting()
		}
		if one(12) {
			b = b.shutdown(epoch.Add(time.Duration(r.IntN(3)-1) * time.Minute))
		}
		if one(10) {
			o.pool.expectedDeletes.Insert(b.UID)
		}
		if one(4) {
			since := epoch.Add(-time.Duration(r.IntN(240)) * time.Second)
			o.nodes.bySandbox[b.UID] = unavailableNode{since: since, noticed: since}
		}
		if one(20) {
			o.pool.expectedCreates[b.UID] = current
		}
		o.pool.sandboxes = append(o.pool.sandboxes, b.Sandbox)
	}
	for i := range r.IntN(3) {
		o.pool.expectedCreates[types.UID(fmt.Sprintf("unseen%d", i))] = []string{current, older}[r.IntN(2)]
	}
	return o
}

// Carried out again and again, with sandboxes that get ready and claims that take
// some, a pool ends full and up to date, and is never below the floor except by
// what claims took.
func TestPlanConverges(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		replicas := 1 + r.IntN(20)
		limit := intstr.FromString(fmt.Sprintf("%d%%", 1+r.IntN(100)))
		o := &observation{set: makeSet(int32(replicas), updateLimit(limit)), target: targetOf(current), now: epoch}
		for i := range r.IntN(30) {
			o.pool.sandboxes = append(o.pool.sandboxes, starting(fmt.Sprintf("old%02d", i)).revision(older).Sandbox)
		}
		born, steps := 0, 0
		for ; steps < 300; steps++ {
			if steps < 30 && r.IntN(3) == 0 && len(o.pool.sandboxes) > 0 { // a claim
				o.pool.sandboxes = o.pool.sandboxes[1:]
			}
			c := o.count()
			p, err := o.plan(&c, delays{})
			if err != nil {
				t.Fatal(err)
			}
			if problem := brokenRule(o, &c, p); problem != "" {
				t.Fatalf("seed %d, step %d: %s", seed, steps, problem)
			}
			gone := sets.New(p.remove...)
			var next []*v1alpha1.Sandbox
			for _, sandbox := range o.pool.sandboxes {
				if gone.Has(sandbox) {
					continue
				}
				if r.IntN(2) == 0 {
					builder{sandbox}.phase(v1alpha1.SandboxRunning).ready(true).ip("127.0.0.9")
				}
				next = append(next, sandbox)
			}
			for range p.create {
				next = append(next, starting(fmt.Sprintf("new%04d", born)).Sandbox)
				born++
			}
			o.pool.sandboxes = next
			if c.updatedAvailable == replicas && c.unused() == replicas && steps >= 30 {
				break
			}
		}
		if steps == 300 {
			c := o.count()
			t.Fatalf("seed %d: after %d steps %d of %d available and up to date, %d unused",
				seed, steps, c.updatedAvailable, replicas, c.unused())
		}
	}
}
