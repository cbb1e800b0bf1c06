// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/store/revisioncache"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Storage is what is served for sandboxes.
type Storage struct {
	Sandbox *accesscheck.REST
	Status  *base.StatusREST
	Proxy   *ProxyREST
}

// NewStore returns the store of sandboxes.
func NewStore(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	return base.NewStore(&genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.Sandbox{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxList{} },
		PredicateFunc:             match,
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxes"),
		SingularQualifiedResource: v1alpha1.Resource("sandbox"),
		TableConvertor:            NewTableConvertor(clock.RealClock{}),
	}, NewStrategy(scheme, clock.RealClock{}), &generic.StoreOptions{
		RESTOptions: base.WrapStorage(revisioncache.Options(optsGetter), deleteWhenFull), AttrFunc: GetAttrs, Indexers: indexers(),
	})
}

// AdmitPodChange runs validating admission for CREATE on a sandbox whose pod template an update
// changes.
type AdmitPodChange func(ctx context.Context, sandbox *v1alpha1.Sandbox, dryRun bool) error

// admitObject calls a for a sandbox whose pod template an update changes.
func (a AdmitPodChange) admitObject(ctx context.Context, obj runtime.Object, dryRun bool) error {
	sandbox, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return fmt.Errorf("admitting the pod of an update: %T is not a Sandbox", obj)
	}
	if a == nil {
		return nil
	}
	return a(ctx, sandbox, dryRun)
}

// NewREST returns what is served from the store of sandboxes. Who may write the marks of
// sandboxes, and change their pods, is asked of may; owners reads their sets and claims, and
// admit admits pods; nil admits all. addresses verifies the addresses that requests are forwarded to.
func NewREST(
	scheme *runtime.Scheme, store *genericregistry.Store, may authorizer.UnconditionalAuthorizer, owners accesscheck.OwnerGetter,
	admit AdmitPodChange, addresses *podaddress.Verifier,
) Storage {
	strategy := NewStrategy(scheme, clock.RealClock{})
	return Storage{
		Sandbox: accesscheck.NewREST(base.NewSharedREST(store, "sbx"), &accesscheck.Checker{
			Resource: "sandboxes", Authorizer: may, Owners: owners, Needed: rightsNeeded,
			PodRights: podChangeRights, AdmitPodChange: admit.admitObject,
		}),
		Status: base.NewStatusREST(store, NewStatusStrategy(strategy)),
		Proxy:  NewProxyREST(store, addresses),
	}
}

// match lets the watch cache find by an index what claims and allocator look up
// among very many: the sandboxes of a claim, and the unclaimed sandboxes of a pool.
func match(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	indexed := []string{v1alpha1.LabelClaimName}
	// The index of pools holds nothing else.
	if claimed, ok := label.RequiresExactMatch(v1alpha1.LabelSandboxClaimed); ok && claimed == v1alpha1.ClaimedFalse {
		indexed = append(indexed, v1alpha1.LabelSandboxPool)
	}
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: GetAttrs, IndexLabels: indexed}
}

// indexers index sandboxes by claim and, while they are unclaimed, by pool. A
// claimed sandbox keeps the label of its pool, so with it the index would grow with
// all that was ever claimed.
func indexers() *cache.Indexers {
	return &cache.Indexers{
		storage.LabelIndex(v1alpha1.LabelClaimName): byLabel(v1alpha1.LabelClaimName, labels.Everything()),
		storage.LabelIndex(v1alpha1.LabelSandboxPool): byLabel(v1alpha1.LabelSandboxPool,
			labels.SelectorFromSet(labels.Set{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse})),
	}
}

// byLabel indexes the sandboxes that a selector selects by the value of a label.
func byLabel(label string, only labels.Selector) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		sb, ok := obj.(*v1alpha1.Sandbox)
		if !ok {
			return nil, fmt.Errorf("%T is not a Sandbox", obj)
		}
		if value, ok := sb.Labels[label]; ok && only.Matches(labels.Set(sb.Labels)) {
			return []string{value}, nil
		}
		return nil, nil
	}
}
