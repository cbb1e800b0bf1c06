// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// prepare makes a candidate ready to be written: its object as the watch cache
// has it, with the claim's mark on it. ok is false if it cannot be claimed.
func (j *job) prepare(ctx context.Context, c poolindex.Candidate) (b bind, ok bool, err error) {
	sb, err := j.a.store.Sandbox(ctx, c.Pool.Namespace, c.Name)
	if err != nil || sb == nil {
		return bind{}, false, err
	}
	now := j.a.options.Clock.Now()
	if is, ok := poolindex.Available(sb, now); !ok || is.Pool != c.Pool {
		return bind{}, false, nil
	}
	bound := sb.DeepCopy()
	if err := j.binding.apply(bound, counted, now); err != nil {
		return bind{}, false, err
	}
	return bind{candidate: c, sandbox: bound, at: version(sb)}, true, nil
}

// newSandbox makes a sandbox that is the claim's from birth, and counts when it
// is ready.
func (j *job) newSandbox(set *v1alpha1.SandboxSet, now time.Time) (*v1alpha1.Sandbox, error) {
	sb, err := podtemplate.NewSandboxForClaim(set)
	if err != nil {
		return nil, fmt.Errorf("template of SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	// What the generic store fills in on create.
	sb.Name = names.SimpleNameGenerator.GenerateName(sb.GenerateName)
	sb.UID = uuid.NewUUID()
	sb.CreationTimestamp = metav1.NewTime(now)
	sb.Generation = 0 // apply counts up
	sb.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending}
	return sb, j.binding.apply(sb, starting, now)
}

// gatherSurely gathers, and at the claim's first transaction looks past the
// index, which may lag behind what the caller has seen, before there are too few
// and the claim fails or starts sandboxes cold.
func (j *job) gatherSurely(ctx context.Context, n int, makes bool) error {
	if err := j.gather(ctx, n, makes); err != nil || len(j.held) >= n || j.at != 0 {
		return err
	}
	if err := j.a.refresh(ctx, j.waiter.pool); err != nil {
		return err
	}
	return j.gather(ctx, n, makes)
}

// checkShortage fails if a claim that would rather fail than wait finds too few
// sandboxes.
func (j *job) checkShortage(set *v1alpha1.SandboxSet, wanted int) error {
	if set == nil {
		return ErrSetNotFound
	}
	have := len(j.held)
	if have >= wanted {
		return nil
	}
	return &ShortageError{
		Set: set.Name, Wanted: wanted, Available: min(wanted, have+j.a.index.Available(j.waiter.pool)),
		RetryAfter: j.a.options.RetryAfter,
	}
}

// version is an object's resourceVersion as etcd counts it; 0 if it has none.
func version(obj metav1.Object) int64 {
	v, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
