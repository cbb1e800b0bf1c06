// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
)

// Binder stores a claim together with the sandboxes that it asks for. *allocator.Allocator
// implements it.
type Binder interface {
	// Create stores the claim, which must not exist yet, and returns it as
	// stored. Its errors are those of allocator.Allocator.Create.
	Create(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error)

	// Preview returns what Create would return, and writes nothing.
	Preview(ctx context.Context, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error)

	// Check fails as Create would, if the claim asks for that and there are too few
	// sandboxes now, or if it adds what its template does not take. It takes nothing.
	Check(ctx context.Context, claim *v1alpha1.SandboxClaim) error

	// CheckSource fails if a claim of agent-sandbox names a pool of another template than
	// it names beside that.
	CheckSource(ctx context.Context, claim *v1alpha1.SandboxClaim) error

	// Ahead returns how many claims have their turn before a claim that waits for pools, or
	// false for one that does not.
	Ahead(claim *v1alpha1.SandboxClaim) (int, bool)
}

// bindingStorage wraps the generic storage of claims. It stores a new claim together with
// its sandboxes, in one transaction.
//
// The generic store calls it for a claim that has a name, is valid and was admitted. Dry
// runs end in the generic store. There are two ways to create a claim, Create and
// GuaranteedUpdate, and bindingStorage overrides both.
type bindingStorage struct {
	storage.Interface
	binder Binder
}

// Create binds instead of storing the claim alone.
func (s *bindingStorage) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	claim, ok := obj.(*v1alpha1.SandboxClaim)
	if !ok {
		return fmt.Errorf("creating %s: %T is not a SandboxClaim", key, obj)
	}
	if claim.ResourceVersion != "" {
		return storage.ErrResourceVersionSetOnCreate
	}
	Waits(ctx)
	bound, err := s.binder.Create(ctx, claim)
	switch {
	case errors.Is(err, allocator.ErrClaimExists): // after which the generic store tries another generated name
		return storage.NewKeyExistsError(key, 0)
	case err != nil:
		return statusError(claim, err)
	}
	addAuditAnnotations(ctx, bound, bound.Status.Sandboxes)
	warnIfShort(ctx, bound, false)
	if out != nil {
		*out.(*v1alpha1.SandboxClaim) = *bound
	}
	return nil
}

// waitingKey is the key of the function of WithWaiting.
type waitingKey struct{}

// WithWaiting returns a context with a function that Waits calls.
func WithWaiting(ctx context.Context, waiting func()) context.Context {
	return context.WithValue(ctx, waitingKey{}, waiting)
}

// Waits is called before a new claim may wait for sandboxes.
func Waits(ctx context.Context) {
	if waiting, ok := ctx.Value(waitingKey{}).(func()); ok {
		waiting()
	}
}

// errAbsent leaves GuaranteedUpdate when there is nothing to update.
var errAbsent = errors.New("the claim does not exist")

// GuaranteedUpdate updates, or, for server-side apply of a claim that does not
// exist, creates: apply never calls Create. The update function may run several
// times and on stale objects, so nothing is bound within it. The claim that it returns is
// bound afterwards.
func (s *bindingStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if !ignoreNotFound {
		return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached)
	}
	for {
		var absent runtime.Object
		update := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
			updated, ttl, err := tryUpdate(input, meta)
			if err == nil && meta.ResourceVersion == 0 {
				absent = updated
				return nil, nil, errAbsent
			}
			return updated, ttl, err
		}
		err := s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
		if !errors.Is(err, errAbsent) {
			return err
		}
		err = s.Create(ctx, key, absent, out, 0)
		if !storage.IsExist(err) {
			return err
		}
		cached = nil // another client created it meanwhile: update that
	}
}
