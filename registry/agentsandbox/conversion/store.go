// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Options say how a resource is served in the second group.
type Options struct {
	Scheme *runtime.Scheme
	Words  *Words
	// Table prints the objects.
	Table rest.TableConvertor
	// Check looks for mistakes that only the second group's schema makes; nil is none.
	Check func(obj runtime.Object) field.ErrorList
}

// NewStore returns a store as a second group serves it: the same storage underneath, with one
// cache and one transaction for both. It fails if the store has no strategies of our own.
func NewStore(stored *genericregistry.Store, o Options) (*genericregistry.Store, error) {
	update, err := o.updates(stored)
	if err != nil {
		return nil, err
	}
	served := *stored
	served.DefaultQualifiedResource, served.SingularQualifiedResource = o.Words.Resource, o.Words.Singular
	served.CreateStrategy = createStrategy{stored.CreateStrategy, o.secondGroup()}
	served.UpdateStrategy, served.ResetFieldsStrategy = update, update
	served.TableConvertor = o.Table
	served.DestroyFunc = func() {} // it belongs to the first
	return &served, nil
}

// NewStatusREST returns the status subresource of a resource in the second group.
func NewStatusREST(stored *base.StatusREST, o Options) (*base.StatusREST, error) {
	store := *stored.Store()
	update, err := o.updates(&store)
	if err != nil {
		return nil, err
	}
	store.DefaultQualifiedResource, store.SingularQualifiedResource, store.TableConvertor = o.Words.Resource, o.Words.Singular, o.Table
	return base.NewStatusREST(&store, update), nil
}

func (o *Options) secondGroup() secondGroup { return secondGroup{Carrier{o.Scheme}, o.Words, o.Check} }

func (o *Options) updates(store *genericregistry.Store) (updateStrategy, error) {
	update, ok := store.UpdateStrategy.(base.UpdateStrategy)
	if !ok {
		return updateStrategy{}, fmt.Errorf("serving %s as %s: no strategy is a %T", store.DefaultQualifiedResource, o.Words.Resource, store.UpdateStrategy)
	}
	return updateStrategy{update, o.secondGroup()}, nil
}

// carry carries for the version of a request.
func (c Carrier) carry(ctx context.Context, updated, stored runtime.Object) error {
	if !base.OfAgentSandbox(ctx) {
		return nil
	}
	return c.Carry(updated, stored, base.GroupOf(ctx))
}

// canCarry fails if carry does for a stored object. Preparing an update cannot refuse it, so
// validating it does: what the version cannot say would be lost otherwise.
func (c Carrier) canCarry(ctx context.Context, stored runtime.Object) field.ErrorList {
	if !base.OfAgentSandbox(ctx) {
		return nil
	}
	if _, err := c.asSeen(stored, base.GroupOf(ctx)); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("spec"), fmt.Errorf("what version %s cannot say would be lost: %w", base.GroupOf(ctx), err))}
	}
	return nil
}
