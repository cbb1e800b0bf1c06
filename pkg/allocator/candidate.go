// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// errCandidateGone means that a candidate cannot be bound any more. The caller discards it and takes another.
var errCandidateGone = errors.New("the sandbox is not available any more")

// noTemplateError means that what a candidate is made from cannot be found, or is not what
// its set is to consist of now, which may change.
type noTemplateError struct {
	// asOf is the count of resumes before it was looked for.
	asOf uint64
}

// Error implements error.
func (noTemplateError) Error() string { return "the template of the sandbox is not there" }

// candidates makes what was taken from the index ready to be bound in one attempt of a
// claim. Sandboxes of one pool share their template, so it is looked up once.
type candidates struct {
	templates *templates
	stock     *stock
	claim     *v1alpha1.SandboxClaim
	now       time.Time
	// resolved are the pod templates that candidates refer to, as of which count of
	// resumes; sized are what becomes of their size.
	resolved map[v1alpha1.SandboxTemplateRef]resolvedTemplate
	sized    []sizedRevision
	judged   []judgedRevision
}

type resolvedTemplate struct {
	template *runtime.RawExtension
	asOf     uint64
}

// prepare returns a candidate as it is to be bound, errCandidateGone, a noTemplateError, or a
// RefusedError.
func (c *candidates) prepare(ctx context.Context, from poolindex.Candidate) (*plan.Candidate, error) {
	sb, err := c.stock.store.Sandbox(ctx, from.Pool.Namespace, from.Name, from.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, errCandidateGone
	}
	if is, ok := poolindex.Available(sb, c.now); !ok || is.Pool != from.Pool || sizeOf(sb) > maxCandidate {
		return nil, errCandidateGone
	}
	if err := c.checkStale(ctx, from.Pool, sb); err != nil {
		return nil, err
	}
	ready := &plan.Candidate{Sandbox: sb, Template: sb.Spec.Template, Lock: string(uuid.NewUUID())}
	if ready.Template == nil && sb.Spec.TemplateRef != nil {
		if !podtemplate.RefersToRevision(sb) {
			return nil, errCandidateGone // no set made it so, and it says nothing about its revision
		}
		found, err := c.resolve(ctx, sb)
		if err != nil {
			return nil, err
		}
		if found.template == nil {
			return nil, noTemplateError{found.asOf}
		}
		ready.Template = found.template
	}
	if ready.Template != nil {
		size, err := c.size(ctx, from)
		if err != nil {
			return nil, err
		}
		if err := size.apply(ready, c.templates.sizes, c.claim); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// maxCandidate bounds what of a sandbox users can make large, in bytes. What is larger
// would be too large for a transaction, and would keep claims from the rest of the pool.
const maxCandidate = etcdtxn.MaxBytes / 2

func sizeOf(sb *v1alpha1.Sandbox) int {
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
func (c *candidates) resolve(ctx context.Context, sb *v1alpha1.Sandbox) (resolvedTemplate, error) {
	ref, asOf := *sb.Spec.TemplateRef, c.stock.index.Resumes()
	if known, ok := c.resolved[ref]; ok && (known.template != nil || known.asOf == asOf) {
		return known, nil
	}
	found := resolvedTemplate{asOf: asOf}
	resolved, err := c.templates.cache.ResolveSandbox(ctx, sb, c.stock.store)
	switch {
	case err == nil:
		found.template = resolved.Template
	case isAboutTemplates(err):
		found.template = c.rederive(ctx, sb)
	default:
		return found, err
	}
	if err := ctx.Err(); err != nil {
		return found, err // it may be the reason
	}
	if c.resolved == nil {
		c.resolved = map[v1alpha1.SandboxTemplateRef]resolvedTemplate{}
	}
	c.resolved[ref] = found
	return found, nil
}

// rederive returns the pod template of a sandbox whose set's revision is not stored
// any more, or something else in its place, if it is what comes out of the set now; nil
// otherwise.
func (c *candidates) rederive(ctx context.Context, sb *v1alpha1.Sandbox) *runtime.RawExtension {
	owner := v1alpha1.PoolOf(sb)
	if owner == nil {
		return nil
	}
	set := c.stock.sets.Set(sb.Namespace, owner.Name)
	if set == nil || set.UID != owner.UID {
		return nil
	}
	resolved, err := c.templates.cache.ResolveSet(ctx, set, c.templates.late)
	if err != nil {
		return nil // also if it cannot be read: the candidate comes back
	}
	if revision, err := podtemplate.SetRevision(set, resolved); err != nil || revision != sb.Labels[v1alpha1.LabelTemplateHash] {
		return nil
	}
	return resolved.Template
}

// version is an object's resourceVersion as etcd counts it; 0 if it has none.
func version(obj metav1.Object) uint64 {
	v, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
