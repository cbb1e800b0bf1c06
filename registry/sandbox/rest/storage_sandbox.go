// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest puts the storage of the group together: first the stores that need
// nothing but etcd, then, by what reads from them, the resources that are served.
package rest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

// Stores are the stores that the validation of pods and the allocator read from.
type Stores struct {
	Sandboxes        *genericregistry.Store
	SandboxSets      *genericregistry.Store
	SandboxTemplates *genericregistry.Store
}

// PodValidator validates the pods of sets and templates.
type PodValidator interface {
	sandboxset.PodValidator
	sandboxtemplate.PodValidator
}

// NewStores returns the stores.
func NewStores(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*Stores, error) {
	sandboxes, err := sandbox.NewStore(scheme, optsGetter)
	if err != nil {
		return nil, err
	}
	sets, err := sandboxset.NewStore(scheme, optsGetter)
	if err != nil {
		return nil, err
	}
	templates, err := sandboxtemplate.NewStore(scheme, optsGetter)
	if err != nil {
		return nil, err
	}
	return &Stores{Sandboxes: sandboxes, SandboxSets: sets, SandboxTemplates: templates}, nil
}

// Provider has what the storage of the group is made with.
type Provider struct {
	// Stores are what is served, except for claims.
	Stores *Stores
	// Pods validates pod templates; nil leaves that out.
	Pods PodValidator
	// Binder binds sandboxes to claims that come into being.
	Binder sandboxclaim.Binder
	// AdmitDelete admits the deletion of a sandbox that is released.
	AdmitDelete sandboxclaim.AdmitDelete
	// AdmitPodChange admits a sandbox whose pod template is changed; nil leaves that out.
	AdmitPodChange sandbox.AdmitPodChange
	// CheckVolumes looks at the volumes that claims mount; nil leaves that out.
	CheckVolumes func(ctx context.Context, claim *v1alpha1.SandboxClaim) (field.ErrorList, error)
	// Runtimes knows the agent-runtimes of sandboxes.
	Runtimes sandboxclaim.Runtimes
	// PodAddresses verifies the addresses of sandboxes before requests are forwarded to them.
	PodAddresses *podaddress.Verifier
	// AdmitAccess admits that the create of a claim answers with access tokens.
	AdmitAccess sandboxclaim.AdmitAccess
	// ClaimLimits bound what a claim may ask for.
	ClaimLimits validation.ClaimLimits
	// Authorizer is asked who may write the marks of sandboxes and the revisions of sets, and
	// who gets access tokens with a claim.
	Authorizer authorizer.UnconditionalAuthorizer
}

// NewStorage returns the storage of every resource of the group, and the store of
// claims.
func (p Provider) NewStorage(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (map[string]rest.Storage, *genericregistry.Store, error) {
	claims, err := sandboxclaim.NewREST(scheme, optsGetter, p.Binder, p.ClaimLimits)
	if err != nil {
		return nil, nil, err
	}
	claims.SandboxClaim.CheckVolumes = p.CheckVolumes
	claims.SandboxClaim.AccessChecker = sandboxclaim.NewAccessChecker(p.Authorizer)
	claims.SandboxClaim.DeletionWarnings = sandboxclaim.NewDeletionWarnings(p.Stores.Sandboxes)
	claims.SandboxClaim.Tokens = &sandboxclaim.TokenResponder{Authorizer: p.Authorizer, Admit: p.AdmitAccess, Runtimes: p.Runtimes}
	owners := ownersIn(p.Stores.SandboxSets, claims.SandboxClaim.Store)
	sandboxes := sandbox.NewREST(scheme, p.Stores.Sandboxes, p.Authorizer, owners, p.AdmitPodChange, p.PodAddresses)
	sets := sandboxset.NewREST(scheme, p.Stores.SandboxSets, p.Pods)
	sets.SandboxSet.DeletionWarnings = sandboxset.NewDeletionWarnings(p.Stores.Sandboxes)
	return map[string]rest.Storage{
		"sandboxclaims":               claims.SandboxClaim,
		"sandboxclaims/release":       sandboxclaim.NewReleaseREST(claims.SandboxClaim.Store, p.Stores.Sandboxes, p.AdmitDelete),
		"sandboxclaims/runtimeaccess": sandboxclaim.NewRuntimeAccessREST(claims.SandboxClaim.Store, p.Stores.Sandboxes, p.Runtimes),
		"sandboxclaims/status":        claims.Status,
		"sandboxes":                   sandboxes.Sandbox,
		"sandboxes/proxy":             sandboxes.Proxy,
		"sandboxes/status":            sandboxes.Status,
		"sandboxsets":                 sets.SandboxSet,
		"sandboxsets/scale":           sets.Scale,
		"sandboxsets/status":          sets.Status,
		"sandboxtemplates":            sandboxtemplate.NewREST(scheme, p.Stores.SandboxTemplates, p.Pods, p.Authorizer, owners),
	}, claims.SandboxClaim.Store, nil
}

// ownersIn reads the owners of sandboxes and templates from the stores of sets and claims, as of now.
func ownersIn(sets, claims *genericregistry.Store) accesscheck.OwnerGetter {
	stores := map[string]*genericregistry.Store{"SandboxSet": sets, "SandboxClaim": claims}
	return func(ctx context.Context, namespace string, ref *metav1.OwnerReference) (metav1.Object, error) {
		store := stores[v1alpha1.OwnerKind(ref)]
		if store == nil {
			return nil, fmt.Errorf("a %s owns nothing here", ref.Kind)
		}
		obj, err := store.Get(genericapirequest.WithNamespace(ctx, namespace), ref.Name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		owner, err := meta.Accessor(obj)
		if err != nil || owner.GetUID() != ref.UID {
			return nil, err
		}
		return owner, nil
	}
}
