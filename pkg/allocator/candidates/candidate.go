// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// ErrGone means that a candidate cannot be bound any more. The caller discards it and takes another.
var ErrGone = errors.New("the sandbox is not available any more")

// NoTemplateError means that what a candidate is made from cannot be found, or is not what
// its set is to consist of now, which may change.
type NoTemplateError struct {
	// AsOf is the count of resumes before it was looked for.
	AsOf uint64
}

// Error implements error.
func (NoTemplateError) Error() string { return "the template of the sandbox is not there" }

// Preparer makes what was taken from the index ready to be bound in one attempt of a
// claim. Sandboxes of one pool share their template, so it is looked up once.
type Preparer struct {
	// Templates and Stock are where candidates and their templates are found.
	Templates *Templates
	Stock     *Stock
	// Claim is the claim of the attempt, and Now its time.
	Claim *v1alpha1.SandboxClaim
	Now   time.Time

	// resolved are the pod templates that candidates refer to, as of which count of
	// resumes. sized is what becomes of the size of those of a revision, and staleness
	// whether they are stale.
	resolved  map[v1alpha1.SandboxTemplateRef]resolvedTemplate
	sized     []sizedRevision
	staleness []revisionStaleness
}

type resolvedTemplate struct {
	template *runtime.RawExtension
	asOf     uint64
}

// Prepare returns a candidate as it is to be bound, ErrGone, a NoTemplateError, or a
// RefusedError.
func (p *Preparer) Prepare(ctx context.Context, from poolindex.Candidate) (*plan.Candidate, error) {
	sb, err := p.Stock.Store.Sandbox(ctx, from.Pool.Namespace, from.Name, from.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, ErrGone
	}
	if is, ok := poolindex.CandidateOf(sb, p.Now); !ok || is.Pool != from.Pool || Size(sb) > MaxSize {
		return nil, ErrGone
	}
	if err := p.CheckStale(ctx, from.Pool, sb); err != nil {
		return nil, err
	}
	ready := &plan.Candidate{Sandbox: sb, Template: sb.Spec.Template, Lock: string(uuid.NewUUID())}
	if ready.Template == nil && sb.Spec.TemplateRef != nil {
		if !podtemplate.RefersToRevision(sb) {
			return nil, ErrGone // no set made it so, and it says nothing about its revision
		}
		found, err := p.resolve(ctx, sb)
		if err != nil {
			return nil, err
		}
		if found.template == nil {
			return nil, NoTemplateError{found.asOf}
		}
		ready.Template = found.template
	}
	if ready.Template != nil {
		size, err := p.size(ctx, from)
		if err != nil {
			return nil, err
		}
		if err := size.apply(ready, p.Templates.sizes, p.Claim); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// MaxSize bounds what of a sandbox users can make large, in bytes. What is larger
// would be too large for a transaction, and would keep claims from the rest of the pool.
const MaxSize = etcdtxn.MaxBytes / 2

// Size returns how many bytes a sandbox has of what users can make large.
func Size(sb *v1alpha1.Sandbox) int {
	n := 0
	for _, m := range []map[string]string{sb.Labels, sb.Annotations} {
		for key, value := range m {
			n += len(key) + len(value)
		}
	}
	if sb.Spec.Template != nil {
		n += len(sb.Spec.Template.Raw)
	}
	for i := range sb.Spec.VolumeClaimTemplates {
		n += len(sb.Spec.VolumeClaimTemplates[i].Raw)
	}
	return n
}

// resolve looks for the pod template that a sandbox refers to; nil if it is not
// there.
func (p *Preparer) resolve(ctx context.Context, sb *v1alpha1.Sandbox) (resolvedTemplate, error) {
	ref, asOf := *sb.Spec.TemplateRef, p.Stock.Index.Suspensions.Resumes()
	if known, ok := p.resolved[ref]; ok && (known.template != nil || known.asOf == asOf) {
		return known, nil
	}
	found := resolvedTemplate{asOf: asOf}
	resolved, err := p.Templates.cache.ResolveSandbox(ctx, sb, p.Stock.Store)
	switch {
	case err == nil:
		found.template = resolved.Template
	case isAboutTemplates(err):
		found.template = p.rederive(ctx, sb)
	default:
		return found, err
	}
	if err := ctx.Err(); err != nil {
		return found, err // it may be the reason
	}
	if p.resolved == nil {
		p.resolved = map[v1alpha1.SandboxTemplateRef]resolvedTemplate{}
	}
	p.resolved[ref] = found
	return found, nil
}

// rederive returns the pod template of a sandbox whose set's revision is not stored
// any more, or something else in its place, if it is what comes out of the set now; nil
// otherwise.
func (p *Preparer) rederive(ctx context.Context, sb *v1alpha1.Sandbox) *runtime.RawExtension {
	owner := v1alpha1.PoolOf(sb)
	if owner == nil {
		return nil
	}
	set := p.Stock.Sets.Set(sb.Namespace, owner.Name)
	if set == nil || set.UID != owner.UID {
		return nil
	}
	resolved, err := p.Templates.cache.ResolveSet(ctx, set, p.Templates.late)
	if err != nil {
		return nil // also if it cannot be read: the candidate comes back
	}
	if revision, err := p.Templates.cache.SetRevision(set, resolved); err != nil || revision != sb.Labels[v1alpha1.LabelTemplateHash] {
		return nil
	}
	return resolved.Template
}
