// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// supply is where the sandboxes of a claim can come from.
type supply struct {
	// sources are the pools that may serve it, in the order in which it prefers them
	// as long as they have the same stock.
	sources []source
	// set is what fresh sandboxes are made from, or, where it is nil, template: the
	// name of the SandboxTemplate. With neither there are none.
	set      *v1alpha1.SandboxSet
	template string
	// found: a set serves the claim, or could make sandboxes for it.
	found bool
	// name is what a shortage is said to be of: a SandboxTemplate, or a SandboxSet.
	name       string
	ofTemplate bool
	// problem is why nothing can serve the claim as things are.
	problem *problem
}

// source is a pool that may serve a claim.
type source struct {
	pool poolindex.Pool
	// rank comes before stock: 0 for sandboxes that are what the template says.
	rank int
	// holds is how many sandboxes the pool may come to hold for the claim.
	holds int32
}

// problem is something that a claim asks for and that is not there.
type problem struct {
	// field of the claim's spec that names it, and the name.
	field, name string
	// reason is the one that the claim's conditions give should it end like this.
	reason, message string
	// missing: there is no object of that name.
	missing bool
}

// setView is what choose has to know of sets: *catalog is one.
type setView interface {
	set(namespace, name string) *v1alpha1.SandboxSet
	using(namespace, template string) []*v1alpha1.SandboxSet
}

// choose says which pools serve a claim, and what its fresh sandboxes are made from.
//
//  1. templateName is the SandboxSet of that name.
//  2. Where there is none, and for sandboxTemplateRef, it is the sets that refer to
//     the SandboxTemplate of that name. For sandboxTemplateRef a set of that name
//     that refers to none is one of them: it counts as a template of its own name.
//  3. warmPool takes all of these away but one, or all of them.
//  4. Fresh ones are made from the set that was named or, of those of a template,
//     from the first without a patch: a patch makes a cheaper pool, and who waits
//     for a fresh sandbox can have what the template says. So if all have one it is
//     the template itself, as it is where there is no set.
func choose(claim *v1alpha1.SandboxClaim, sets setView) supply {
	asked, byRef := v1alpha1.AskedOf(claim)
	named, users := sets.set(claim.Namespace, asked), sets.using(claim.Namespace, asked)
	var candidates []*v1alpha1.SandboxSet
	switch {
	case named != nil && !byRef:
		candidates = []*v1alpha1.SandboxSet{named}
	case named != nil && named.Spec.Template != nil:
		at, _ := slices.BinarySearchFunc(users, named, preferred)
		candidates = slices.Insert(slices.Clone(users), at, named)
	default:
		candidates = users
	}

	s := supply{sources: sourcesOf(claim, candidates...), found: len(candidates) > 0, name: asked, ofTemplate: true}
	switch {
	case named != nil && !byRef:
		s.set, s.ofTemplate = named, false
	case s.found && rankOf(candidates[0]) == 0:
		s.set = candidates[0]
	default:
		s.template = asked
	}

	switch pool := claim.Spec.WarmPool; pool {
	case "", v1alpha1.WarmPoolDefault:
		if !s.found && !byRef {
			// Its sandboxes may be heard of before it is.
			s.sources = []source{{pool: poolindex.Pool{Namespace: claim.Namespace, Name: asked}}}
			s.ofTemplate = false
		}
	case v1alpha1.WarmPoolNone:
		s.sources = nil
	default:
		for _, set := range slices.Concat(candidates, users) {
			if set.Name == pool {
				return supply{sources: sourcesOf(claim, set), set: set, found: true, name: pool}
			}
		}
		return supply{name: pool, problem: unfitPool(claim, sets.set(claim.Namespace, pool))}
	}
	return s
}

// sourcesOf are the pools of sets. Sets grow for a claim that waits for them, not for one
// that has sandboxes made, even while it can have none.
func sourcesOf(claim *v1alpha1.SandboxClaim, sets ...*v1alpha1.SandboxSet) []source {
	grow := !createsOnNoStock(claim)
	sources := make([]source, 0, len(sets))
	for _, set := range sets {
		sources = append(sources, source{pool: poolOf(set), rank: rankOf(set), holds: holds(set, grow)})
	}
	return sources
}

// unfitPool says why the pool that a claim names as its only one cannot serve it:
// there is none, or it, set, is one of something else.
func unfitPool(claim *v1alpha1.SandboxClaim, set *v1alpha1.SandboxSet) *problem {
	pool := claim.Spec.WarmPool
	p := &problem{
		field: "warmPool", name: pool, missing: set == nil,
		reason: v1alpha1.ReasonSandboxSetNotFound, message: v1alpha1.SandboxSetNotFoundMessage(pool),
	}
	if set != nil {
		asked, _ := v1alpha1.AskedOf(claim)
		p.reason = v1alpha1.ReasonWarmPoolMismatch
		p.message = fmt.Sprintf("SandboxSet %s has no sandboxes of %s", pool, asked)
	}
	return p
}

// withoutSets completes the supply of a claim that no set serves: what is left is
// to make sandboxes straight from the template, if there is one.
func (s *supply) withoutSets(claim *v1alpha1.SandboxClaim, templateFound bool) {
	if templateFound && createsOnNoStock(claim) {
		return
	}
	asked, byRef := v1alpha1.AskedOf(claim)
	s.template = ""
	s.problem = &problem{
		field: sourceField(byRef), name: asked, missing: true,
		reason: v1alpha1.ReasonSandboxSetNotFound, message: v1alpha1.SandboxSetNotFoundMessage(asked),
	}
	switch {
	case byRef && !templateFound:
		s.problem.reason, s.problem.message = v1alpha1.ReasonSandboxTemplateNotFound, v1alpha1.SandboxTemplateNotFoundMessage(asked)
	case byRef:
		s.problem.missing = false
		s.problem.message = fmt.Sprintf("No SandboxSet refers to SandboxTemplate %s", asked)
	}
}

// sourceField is the field of a claim's spec that says what it asks for.
func sourceField(byRef bool) string {
	if byRef {
		return "sandboxTemplateRef.name"
	}
	return "templateName"
}

// canMake says whether there is something to make fresh sandboxes from.
func (s *supply) canMake() bool { return s.problem == nil && (s.set != nil || s.template != "") }

// holds is how many sandboxes all the pools may come to hold for the claim.
func (s *supply) holds() int {
	total := 0
	for _, from := range s.sources {
		total += int(from.holds)
	}
	return total
}

// concerns says whether a set may be one of those that serve a claim.
func concerns(claim *v1alpha1.SandboxClaim, set *v1alpha1.SandboxSet) bool {
	asked, _ := v1alpha1.AskedOf(claim)
	return set != nil && claim.Namespace == set.Namespace &&
		(asked == set.Name || asked == v1alpha1.SandboxTemplateOf(set) || claim.Spec.WarmPool == set.Name)
}

// byStock puts sources into the order in which they are to be taken from now.
func byStock(sources []source, stock func(poolindex.Pool) int) []source {
	if len(sources) < 2 {
		return sources
	}
	type stocked struct {
		source
		stock int
	}
	all := make([]stocked, 0, len(sources))
	for _, s := range sources {
		all = append(all, stocked{s, stock(s.pool)})
	}
	slices.SortStableFunc(all, func(a, b stocked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.stock, a.stock))
	})
	ordered := make([]source, 0, len(all))
	for _, s := range all {
		ordered = append(ordered, s.source)
	}
	return ordered
}
