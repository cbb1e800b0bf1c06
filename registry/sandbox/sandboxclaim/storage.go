// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	rules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Storage is what is served for claims.
type Storage struct {
	SandboxClaim *REST
	Status       *base.StatusREST
}

// REST serves claims. Creating one binds its sandboxes: see bindingStorage.
type REST struct {
	*base.REST
	binder Binder
	// CheckVolumes looks at the volumes that a new claim mounts; nil leaves that out. It
	// returns what is wrong with them. The error is one of looking.
	CheckVolumes func(ctx context.Context, claim *v1alpha1.SandboxClaim) (field.ErrorList, error)
	// AccessChecker checks who changes claims; nil leaves that out.
	AccessChecker *accesscheck.Checker
	// Tokens answers creates with access tokens.
	Tokens *TokenResponder
	// Strict refuses claims of agent-sandbox that are stored with a condition otherwise.
	Strict bool
}

var _ rest.StandardStorage = &REST{}

// NewREST returns the storage of claims, which are held to limits, and of their status.
func NewREST(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter, binder Binder, limits validation.ClaimLimits) (Storage, error) {
	strategy := NewStrategy(scheme, clock.RealClock{}, limits)
	binding := func(inner storage.Interface) storage.Interface {
		return &bindingStorage{Interface: inner, binder: binder}
	}
	store, err := base.NewStore(&genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.SandboxClaim{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxClaimList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxclaims"),
		SingularQualifiedResource: v1alpha1.Resource("sandboxclaim"),
		TableConvertor:            NewTableConvertor(clock.RealClock{}, binder.Ahead),
	}, strategy, &generic.StoreOptions{RESTOptions: base.WrapStorage(optsGetter, binding), AttrFunc: GetAttrs})
	if err != nil {
		return Storage{}, err
	}
	return Storage{
		SandboxClaim: &REST{REST: base.NewSharedREST(store, "sbc"), binder: binder},
		Status:       base.NewStatusREST(store, NewStatusStrategy(strategy)),
	}, nil
}

// In returns the claims as another group serves them.
func (r *REST) In(served *base.REST) *REST {
	served.DeletionWarnings = r.DeletionWarnings
	other := *r
	other.REST = served
	return &other
}

// Create stores a claim. A dry run shows what would be bound now.
func (r *REST) Create(ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	isDryRun, tokens := dryrun.IsDryRun(options.DryRun), tokensOf(ctx)
	if tokens != nil {
		createValidation = r.Tokens.admitted(tokens, createValidation, options)
	}
	created, err := r.Store.Create(ctx, obj, r.checkBefore(createValidation, isDryRun, checkName(r.Store)), options)
	switch {
	case err != nil:
		return nil, err
	case isDryRun:
		return r.preview(ctx, created)
	case tokens != nil:
		r.Tokens.fill(ctx, tokens, created)
	}
	return created, nil
}

// Update changes a claim, or, for server-side apply, creates it.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	isDryRun := dryrun.IsDryRun(options.DryRun)
	updateValidation = r.checkSourceBefore(updateValidation)
	if r.AccessChecker != nil {
		ctx = r.AccessChecker.WithRequested(ctx)
		updateValidation = r.AccessChecker.Update(updateValidation, isDryRun)
	}
	objInfo = base.TrackFieldManagers(r.UpdateStrategy, objInfo, forceAllowCreate, options)
	obj, created, err := r.Store.Update(ctx, name, objInfo, r.checkBefore(createValidation, isDryRun), updateValidation, forceAllowCreate, options)
	if err != nil || !created || !isDryRun {
		return obj, created, err
	}
	obj, err = r.preview(ctx, obj)
	return obj, created, err
}

func (r *REST) preview(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	claim, ok := obj.(*v1alpha1.SandboxClaim)
	if !ok {
		return nil, fmt.Errorf("previewing: %T is not a SandboxClaim", obj)
	}
	end, err := base.BeginWork(ctx, rules.Replicas(claim)*base.SandboxWork)
	if err != nil {
		return nil, err
	}
	defer end()
	preview, err := r.binder.Preview(ctx, claim)
	if err != nil {
		return nil, statusError(claim, err)
	}
	warnIfShort(ctx, preview, true)
	return preview, nil
}
