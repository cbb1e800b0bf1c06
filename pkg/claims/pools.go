// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Sets is what EligiblePools has to know of the SandboxSets of a namespace.
type Sets interface {
	// Set returns the set of a name, or nil.
	Set(namespace, name string) *v1alpha1.SandboxSet
	// Using returns the sets that refer to a SandboxTemplate, in the order of
	// ComparePreference.
	Using(namespace, template string) []*v1alpha1.SandboxSet
}

// Eligible is where the sandboxes of a claim can come from.
type Eligible struct {
	// Pools are the sets whose sandboxes may serve the claim, the preferred ones
	// first as long as they have the same stock.
	Pools []*v1alpha1.SandboxSet
	// Found reports whether there is a set for what the claim asks, even if the
	// claim does not take its warm sandboxes.
	Found bool
	// MakeFrom is the set that fresh sandboxes are made from. Where it is nil they
	// are made from the SandboxTemplate MakeFromTemplate, if that is not empty.
	MakeFrom         *v1alpha1.SandboxSet
	MakeFromTemplate string
	// Name is that of the SandboxSet that a shortage is reported of, or, with
	// OfTemplate, of the SandboxTemplate.
	Name       string
	OfTemplate bool
	// Problem is why nothing can serve the claim as things are; nil otherwise.
	Problem *Problem
}

// Problem is something that a claim asks for and that does not exist, or does not
// fit.
type Problem struct {
	// Field of the claim's spec that names it, and the name.
	Field, Name string
	// Missing reports whether there is no object of that name.
	Missing bool
	// Reason is that of the claim's conditions if the claim ends like this.
	Reason string
	// Message says what is wrong.
	Message string
}

// EligiblePools returns which pools may serve a claim, and what its fresh sandboxes
// are made from.
//
//  1. templateName is the SandboxSet of that name.
//  2. Where there is none, and for sandboxTemplateRef, it is the sets that refer to
//     the SandboxTemplate of that name. For sandboxTemplateRef a set of that name
//     with a pod template of its own is one of them.
//  3. warmPool leaves one of these, or none. A claim that adds env or volumes takes no
//     sandbox of a pool, whatever warmPool says: it is still made from the set that is left.
//  4. warmPoolRef is the set of its name alone, also for fresh sandboxes. Beside
//     sandboxTemplateRef it has to be a set of that template.
//  5. Fresh sandboxes are made from the set that was named or, of those of a
//     template, from the first without a patch: a patch makes a cheaper pool, and a
//     claim that waits for a fresh sandbox can have what the template says. If all
//     sets have a patch, or there is none, they are made from the template itself.
func EligiblePools(claim *v1alpha1.SandboxClaim, sets Sets) Eligible {
	if claim.Spec.WarmPoolRef != nil {
		return onlyPool(claim, sets)
	}
	asked, byRef := v1alpha1.AskedOf(claim)
	named, known := sets.Set(claim.Namespace, asked), knownAs(claim.Namespace, asked, sets)
	if pool := claim.Spec.WarmPool; isPoolName(pool) {
		for _, set := range known {
			if isAsked(set, claim, named != nil) {
				e := Eligible{Found: true, MakeFrom: set, Name: pool}
				if TakesWarm(claim) {
					e.Pools = []*v1alpha1.SandboxSet{set}
				}
				return e
			}
		}
		return Eligible{Name: pool, Problem: unfitPool(claim, "warmPool", pool, sets.Set(claim.Namespace, pool))}
	}

	other := func(set *v1alpha1.SandboxSet) bool { return !answers(set, asked, byRef, named != nil) }
	serving := known
	if slices.ContainsFunc(known, other) {
		serving = slices.DeleteFunc(slices.Clone(known), other)
	}
	e := Eligible{Pools: serving, Found: len(serving) > 0, Name: asked, OfTemplate: byRef || named == nil && len(serving) > 0}
	switch {
	case named != nil && !byRef:
		e.MakeFrom = named
	case e.Found && Rank(serving[0]) == 0:
		e.MakeFrom = serving[0]
	default:
		e.MakeFromTemplate = asked
	}
	if !TakesWarm(claim) {
		e.Pools, e.OfTemplate = nil, named == nil || byRef
	}
	return e
}

// isPoolName reports whether a warmPool is the name of a set.
func isPoolName(warmPool string) bool {
	switch warmPool {
	case "", v1alpha1.WarmPoolDefault, v1alpha1.WarmPoolNone:
		return false
	}
	return true
}

// onlyPool is EligiblePools of a claim with a warmPoolRef.
func onlyPool(claim *v1alpha1.SandboxClaim, sets Sets) Eligible {
	name := claim.Spec.WarmPoolRef.Name
	set := sets.Set(claim.Namespace, name)
	if set == nil || !isOfTemplate(set, claim) {
		return Eligible{Name: name, Problem: unfitPool(claim, "warmPoolRef.name", name, set)}
	}
	e := Eligible{Found: true, MakeFrom: set, Name: name}
	if TakesWarm(claim) {
		e.Pools = []*v1alpha1.SandboxSet{set}
	}
	return e
}

// TakesWarm reports whether a claim takes sandboxes of pools. One that adds env or volumes
// does not: a pod that runs cannot have them any more.
func TakesWarm(claim *v1alpha1.SandboxClaim) bool {
	return claim.Spec.WarmPool != v1alpha1.WarmPoolNone && !v1alpha1.NeedsFresh(&claim.Spec)
}

// isOfTemplate reports whether a set is one of the template of a claim, if that names one.
func isOfTemplate(set *v1alpha1.SandboxSet, claim *v1alpha1.SandboxClaim) bool {
	ref := claim.Spec.SandboxTemplateRef
	return ref == nil || answers(set, ref.Name, true, false)
}

// knownAs returns the sets that have a name, or refer to the template of that name, the
// preferred ones first.
func knownAs(namespace, name string, sets Sets) []*v1alpha1.SandboxSet {
	named, using := sets.Set(namespace, name), sets.Using(namespace, name)
	if named == nil || slices.Contains(using, named) {
		return using
	}
	at, _ := slices.BinarySearchFunc(using, named, ComparePreference)
	return slices.Insert(slices.Clone(using), at, named)
}

// Serves reports whether the sandboxes of a set may serve a claim of its namespace.
// namedExists is whether there is a set of the name that the claim asks for.
func Serves(set *v1alpha1.SandboxSet, claim *v1alpha1.SandboxClaim, namedExists bool) bool {
	return TakesWarm(claim) && isAsked(set, claim, namedExists)
}

// isAsked reports whether a set is one of those that a claim asks for.
func isAsked(set *v1alpha1.SandboxSet, claim *v1alpha1.SandboxClaim, namedExists bool) bool {
	if ref := claim.Spec.WarmPoolRef; ref != nil {
		return set.Name == ref.Name && isOfTemplate(set, claim)
	}
	asked, byRef := v1alpha1.AskedOf(claim)
	switch pool := claim.Spec.WarmPool; pool {
	case "", v1alpha1.WarmPoolDefault:
		return answers(set, asked, byRef, namedExists)
	case set.Name:
		// The set is named, so a set of the template's name does not hide it.
		return answers(set, asked, byRef, false)
	default:
		return false
	}
}

// answers reports whether a set is what a claim asks for, except for its warmPool.
func answers(set *v1alpha1.SandboxSet, asked string, byRef, namedExists bool) bool {
	isAsked, refers := set.Name == asked, v1alpha1.SandboxTemplateOf(set) == asked
	if byRef {
		return refers || isAsked && set.Spec.Template != nil
	}
	return isAsked || refers && !namedExists
}

// ComparePreference orders the sets of one template by how claims prefer them as
// long as they have the same stock.
func ComparePreference(a, b *v1alpha1.SandboxSet) int {
	return cmp.Or(cmp.Compare(Rank(a), Rank(b)), cmp.Compare(a.Name, b.Name))
}

// Rank comes before stock when a claim chooses a pool: it is 0 for a set whose
// sandboxes are what its template says, and 1 for one with a patch.
func Rank(set *v1alpha1.SandboxSet) int {
	if set.Spec.Patch != nil && set.Spec.Template == nil {
		return 1
	}
	return 0
}

// Capacity is how many sandboxes a set may come to have at once for a claim. Sets
// grow by their burst for claims that wait for them, not for those that make what
// is missing.
func Capacity(set *v1alpha1.SandboxSet, claim *v1alpha1.SandboxClaim) int {
	capacity := int(ptr.Deref(set.Spec.Replicas, 0))
	if !CreatesOnNoStock(claim) && set.DeletionTimestamp == nil {
		capacity += Burst(set)
	}
	return capacity
}

// Burst is how far a set may grow beyond its replicas while claims wait.
func Burst(set *v1alpha1.SandboxSet) int {
	return int(max(0, ptr.Deref(set.Spec.ScaleStrategy.Burst, 0)))
}

// unfitPool is why the only pool that a claim takes, which a field names, cannot serve it;
// set is the one of that name, or nil.
func unfitPool(claim *v1alpha1.SandboxClaim, field, pool string, set *v1alpha1.SandboxSet) *Problem {
	p := &Problem{
		Field: field, Name: pool, Missing: set == nil,
		Reason: v1alpha1.ReasonSandboxSetNotFound, Message: v1alpha1.SandboxSetNotFoundMessage(claim.Namespace, pool),
	}
	if set != nil {
		asked := claim.Spec.TemplateName
		if ref := claim.Spec.SandboxTemplateRef; ref != nil {
			asked = ref.Name
		}
		p.Reason = v1alpha1.ReasonWarmPoolMismatch
		p.Message = fmt.Sprintf("SandboxSet %s has no sandboxes of %s", pool, asked)
	}
	return p
}

// WithoutSets completes what was found for a claim that no set serves: what is left
// is to make sandboxes straight from the template, if that exists.
func (e *Eligible) WithoutSets(claim *v1alpha1.SandboxClaim, templateExists bool) {
	if templateExists && CreatesOnNoStock(claim) {
		return
	}
	asked, byRef := v1alpha1.AskedOf(claim)
	e.MakeFromTemplate = ""
	e.Problem = &Problem{
		Field: AskedField(claim), Name: asked, Missing: true,
		Reason: v1alpha1.ReasonSandboxSetNotFound, Message: v1alpha1.SandboxSetNotFoundMessage(claim.Namespace, asked),
	}
	switch {
	case byRef && !templateExists:
		e.Problem.Reason, e.Problem.Message = v1alpha1.ReasonSandboxTemplateNotFound, v1alpha1.SandboxTemplateNotFoundMessage(claim.Namespace, asked)
	case byRef:
		e.Problem.Missing = false
		e.Problem.Message = fmt.Sprintf("No SandboxSet in namespace %s refers to SandboxTemplate %s", claim.Namespace, asked)
	}
}

// CanMake reports whether there is something to make fresh sandboxes from.
func (e *Eligible) CanMake() bool {
	return e.Problem == nil && (e.MakeFrom != nil || e.MakeFromTemplate != "")
}

// AskedField is the field of a claim's spec that says what it asks for.
func AskedField(claim *v1alpha1.SandboxClaim) string {
	if claim.Spec.WarmPoolRef != nil {
		return "warmPoolRef.name"
	}
	if _, byRef := v1alpha1.AskedOf(claim); byRef {
		return "sandboxTemplateRef.name"
	}
	return "templateName"
}

// MayServe reports whether a set may be one of those that serve a claim, now or
// after another set of the namespace has changed.
func MayServe(set *v1alpha1.SandboxSet, claim *v1alpha1.SandboxClaim) bool {
	asked, _ := v1alpha1.AskedOf(claim)
	return claim.Namespace == set.Namespace &&
		(asked == set.Name || asked == v1alpha1.SandboxTemplateOf(set) || claim.Spec.WarmPool == set.Name)
}

// Served is what of a set decides which claims it serves, and with how much.
type Served struct {
	Template              string
	Rank, Replicas, Burst int
}

// Serving returns what of a set decides which claims it serves, and with how much.
func Serving(set *v1alpha1.SandboxSet) Served {
	s := Served{Template: v1alpha1.SandboxTemplateOf(set), Rank: Rank(set), Replicas: int(ptr.Deref(set.Spec.Replicas, 0))}
	if set.DeletionTimestamp == nil {
		s.Burst = Burst(set)
	}
	return s
}
