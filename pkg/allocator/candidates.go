// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// prepare makes a candidate ready to be written: its object as the watch cache
// has it, with the claim's mark on it. It is nil if the candidate cannot be claimed,
// and then the candidate is answered for.
func (j *job) prepare(ctx context.Context, c poolindex.Candidate) (*bind, error) {
	sb, err := j.a.store.Sandbox(ctx, c.Pool.Namespace, c.Name)
	if err != nil {
		return nil, err
	}
	now := j.a.options.Clock.Now()
	if sb == nil || !isCandidate(sb, c, now) {
		j.a.queue.discard(c)
		return nil, nil
	}
	bound := sb.DeepCopy()
	for bound.Spec.Template == nil && bound.Spec.TemplateRef != nil {
		found, err := j.inlined(ctx, sb)
		if err != nil {
			return nil, err
		}
		if found.template == nil && j.a.aside.put(c, found.asOf) {
			return nil, nil
		}
		bound.Spec.Template = found.template
	}
	if sb.Spec.Template == nil {
		// Whoever has it from now on does not depend on a template or a set any more.
		bound.Spec.TemplateRef = nil
	}
	raised, err := j.raise(ctx, c, bound.Spec.Template)
	if err != nil {
		return nil, err
	}
	bound.Spec.Template = raised.template
	raised.mark(bound, now)
	if err := j.binding.apply(bound, counted); err != nil {
		return nil, err
	}
	return &bind{candidate: c, sandbox: bound, at: version(sb)}, nil
}

// isCandidate says whether a sandbox can be claimed, from the pool that the index
// has it in.
func isCandidate(sb *v1alpha1.Sandbox, c poolindex.Candidate, now time.Time) bool {
	is, ok := poolindex.Available(sb, now)
	return ok && is.Pool == c.Pool
}

// gatherSurely gathers, and at the claim's first transaction looks past the index
// and the catalog, which may lag behind what the caller has seen, before there are
// too few and the claim fails or starts sandboxes cold.
func (j *job) gatherSurely(ctx context.Context, d *draft, n int, makes bool) error {
	if err := j.gather(ctx, d, n, makes); err != nil || len(j.held) >= n || j.at != 0 {
		return err
	}
	var err error
	if d.supply, err = j.a.supplyBeyondCatalog(ctx, j.claim, d.supply); err != nil {
		return err
	}
	if err := j.a.refreshUntil(ctx, d.supply.sources, n-len(j.held)); err != nil {
		return err
	}
	return j.gather(ctx, d, n, makes)
}

// version is an object's resourceVersion as etcd counts it; 0 if it has none.
func version(obj metav1.Object) int64 {
	v, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
