// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// A claim on a template may be served from a pool whose patch makes its sandboxes
// smaller, because they are cheaper to keep. What such a claim gets is as large as
// the template says all the same: the transaction that binds the sandbox puts the
// template's cpu and memory into it and marks it as being resized. Its controller
// resizes the pod, and the sandbox counts when it is ready again. A claim that names
// the set itself asks for what the set says.

// raised is the pod template that a candidate is bound with.
type raised struct {
	template *runtime.RawExtension
	// resize: it says more than what the pod runs with.
	resize bool
	// failed is why the pod stays smaller than the template, or may be.
	failed error
}

// goal is what becomes of the candidates of a pool that are of one revision.
type goal struct {
	pool     poolindex.Pool
	revision string
	// want is the template that says how large they are to be; nil where they stay as
	// they are, and failed is why if it should not be so.
	want   *runtime.RawExtension
	failed error
	// have is the template that raised was last worked out for. Candidates of a revision
	// have the same one, unless a user changed one of them.
	have   *runtime.RawExtension
	raised raised
}

// raise returns the template that a candidate with the template have is bound with.
func (j *job) raise(ctx context.Context, c poolindex.Candidate, have *runtime.RawExtension) (raised, error) {
	if have == nil {
		return raised{}, nil
	}
	g, err := j.goal(ctx, c)
	switch {
	case err != nil:
		return raised{}, err
	case g.want == nil:
		return raised{template: have, failed: g.failed}, nil
	case g.have == nil || !bytes.Equal(g.have.Raw, have.Raw):
		g.have, g.raised = have, j.a.sizes.raise(have, g.want)
	}
	return g.raised, nil
}

// goal finds out once in a draft what becomes of the candidates that are like c. The
// result is good until the next call.
func (j *job) goal(ctx context.Context, c poolindex.Candidate) (*goal, error) {
	at := slices.IndexFunc(j.goals, func(g goal) bool { return g.pool == c.Pool && g.revision == c.Revision })
	if at >= 0 {
		return &j.goals[at], nil
	}
	g := goal{pool: c.Pool, revision: c.Revision}
	if set := j.a.smallerSet(j.claim, c); set != nil {
		want, err := j.a.wanted(ctx, set)
		switch {
		case err == nil:
			g.want = want
		case unresolved(err), errors.Is(err, errNoAnswer):
			g.failed = err // not as large as it might be, but there
		default:
			return nil, err
		}
	}
	j.goals = append(j.goals, g)
	return &j.goals[len(j.goals)-1], nil
}

// wanted is the template that a set refers to, without the set's patch.
func (a *Allocator) wanted(ctx context.Context, set *v1alpha1.SandboxSet) (*runtime.RawExtension, error) {
	if err := refusedTemplate(set); err != nil {
		return nil, err // the pool goes on with an older one, and so do claims
	}
	unpatched := *set
	unpatched.Spec.Patch = nil
	resolved, err := a.templates.ResolveSet(ctx, &unpatched, a.late)
	if err != nil {
		return nil, err
	}
	return resolved.Template, nil
}

// smallerSet returns the set of a candidate's pool if the claim asks for the template
// that the set refers to, and the candidate may be smaller than that: because of the
// set's patch, or because it was made from what the set was before.
func (a *Allocator) smallerSet(claim *v1alpha1.SandboxClaim, c poolindex.Candidate) *v1alpha1.SandboxSet {
	set := a.catalog.set(c.Pool.Namespace, c.Pool.Name)
	if set == nil {
		return nil
	}
	asked, byRef := v1alpha1.AskedOf(claim)
	if v1alpha1.SandboxTemplateOf(set) != asked || !byRef && a.catalog.set(claim.Namespace, asked) != nil {
		return nil
	}
	if !outdated(set, c.Revision) && (set.Spec.Patch == nil || !a.sizes.patched(set)) {
		return nil
	}
	return set
}

// outdated says whether a sandbox of a revision may have been made from something
// else than what the set is now.
func outdated(set *v1alpha1.SandboxSet, revision string) bool {
	status := &set.Status
	return status.UpdateRevision != "" &&
		(status.UpdateRevision != revision || status.ObservedGeneration != set.Generation)
}

// mark says on a sandbox that is about to be bound what becomes of its size.
func (r raised) mark(sb *v1alpha1.Sandbox, now time.Time) {
	switch {
	case r.resize:
		podresize.Begin(sb, now)
	case r.failed != nil:
		podresize.Fail(sb, now, r.failed)
	}
}

func anyResizing(binds []bind) bool {
	for _, b := range binds {
		if podresize.InProgress(b.sandbox) {
			return true
		}
	}
	return false
}
