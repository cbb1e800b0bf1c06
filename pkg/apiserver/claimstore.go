// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/pkg/apiserver/etcdquota"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// claimStore is what the allocator needs of storage: reads through the generic
// stores and their watch caches, writes through transactions.
type claimStore struct {
	// templateLookup finds templates.
	*templateLookup

	sandboxes, sets *genericregistry.Store

	client          *etcdtxn.Client
	guards          *etcdtxn.Guards
	claimResource   *etcdtxn.Resource
	sandboxResource *etcdtxn.Resource

	// limiter counts all writes. Those of exempt users are never rejected.
	limiter *etcdquota.Limiter
	exempt  sets.Set[string]
}

var _ allocator.Store = &claimStore{}

// newResource returns how a resource's objects lie in etcd, from the options
// that its generic store is built from as well.
func newResource(getter generic.RESTOptionsGetter, resource string) (*etcdtxn.Resource, *generic.RESTOptions, error) {
	options, err := getter.GetRESTOptions(v1alpha1.Resource(resource), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("storage options of %s: %w", resource, err)
	}
	return etcdtxn.NewResource(options.StorageConfig, options.ResourcePrefix), &options, nil
}

// Sandbox implements allocator.Store.
func (s *claimStore) Sandbox(ctx context.Context, namespace, name string, notOlderThan uint64) (*v1alpha1.Sandbox, error) {
	sb, err := get[*v1alpha1.Sandbox](ctx, s.sandboxes, namespace, name, "0")
	if err != nil || sb != nil && poolindex.ParseVersion(sb.ResourceVersion) >= notOlderThan {
		return sb, err
	}
	// The index is ahead of the cache: a list has brought the sandbox.
	return get[*v1alpha1.Sandbox](ctx, s.sandboxes, namespace, name, "")
}

// revisionOf returns the revision of etcd that an object was read at.
func revisionOf(obj metav1.Object) int64 {
	return int64(poolindex.ParseVersion(obj.GetResourceVersion()))
}

// Set implements allocator.Store.
func (s *claimStore) Set(ctx context.Context, namespace, name string) (*v1alpha1.SandboxSet, error) {
	set, err := get[*v1alpha1.SandboxSet](ctx, s.sets, namespace, name, "0")
	if err != nil || set != nil {
		return set, err
	}
	return get[*v1alpha1.SandboxSet](ctx, s.sets, namespace, name, "")
}

// Sets implements allocator.Store. It reads as of now, which the watch cache makes
// sure of.
func (s *claimStore) Sets(ctx context.Context, namespace string) ([]*v1alpha1.SandboxSet, uint64, error) {
	return list[*v1alpha1.SandboxSet](ctx, s.sets, namespace, &metainternalversion.ListOptions{})
}

// Claim implements allocator.Store.
func (s *claimStore) Claim(ctx context.Context, namespace, name string) (*v1alpha1.SandboxClaim, error) {
	claim, _, err := s.CreatedClaim(ctx, namespace, name)
	return claim, err
}

// CreatedClaim implements allocator.Store.
func (s *claimStore) CreatedClaim(ctx context.Context, namespace, name string) (*v1alpha1.SandboxClaim, uint64, error) {
	claim := &v1alpha1.SandboxClaim{}
	created, err := s.client.Get(ctx, s.claimResource, s.claimResource.Key(namespace, name), claim)
	if err != nil || created == 0 {
		return nil, 0, err
	}
	return claim, uint64(created), nil
}

// SandboxesOf implements allocator.Store.
func (s *claimStore) SandboxesOf(ctx context.Context, claim *v1alpha1.SandboxClaim) ([]*v1alpha1.Sandbox, error) {
	all, _, err := list[*v1alpha1.Sandbox](ctx, s.sandboxes, claim.Namespace, byLabels(labels.Set{v1alpha1.LabelClaimName: claim.Name}))
	if err != nil {
		return nil, err
	}
	var its []*v1alpha1.Sandbox
	for _, sb := range all {
		if sb.Annotations[v1alpha1.AnnotationOwner] == string(claim.UID) {
			its = append(its, sb)
		}
	}
	return its, nil
}

// PoolSandboxes implements allocator.Store.
func (s *claimStore) PoolSandboxes(ctx context.Context, namespace, set string) ([]*v1alpha1.Sandbox, uint64, error) {
	return list[*v1alpha1.Sandbox](ctx, s.sandboxes, namespace, byLabels(labels.Set{
		v1alpha1.LabelSandboxPool:    set,
		v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
	}))
}

// byLabels selects by labels, as of now, which the watch cache makes sure of.
func byLabels(by labels.Set) *metainternalversion.ListOptions {
	return &metainternalversion.ListOptions{LabelSelector: by.AsSelector()}
}

// list reads the objects of a namespace, and returns as of which resourceVersion they
// are. They are not to be changed.
func list[T runtime.Object](
	ctx context.Context, store *genericregistry.Store, namespace string, options *metainternalversion.ListOptions,
) ([]T, uint64, error) {
	obj, err := store.List(genericapirequest.WithNamespace(ctx, namespace), options)
	if err != nil {
		return nil, 0, fmt.Errorf("listing %s in %s: %w", store.DefaultQualifiedResource, namespace, err)
	}
	objects, err := meta.ExtractList(obj)
	if err != nil {
		return nil, 0, err
	}
	all := make([]T, 0, len(objects))
	for _, object := range objects {
		one, err := typed[T](object)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, one)
	}
	accessor, err := meta.ListAccessor(obj)
	if err != nil {
		return nil, 0, err
	}
	asOf, err := storage.APIObjectVersioner{}.ParseResourceVersion(accessor.GetResourceVersion())
	return all, asOf, err
}

// get reads an object; the zero T where there is none.
func get[T any](ctx context.Context, store *genericregistry.Store, namespace, name, resourceVersion string) (T, error) {
	var none T
	ctx = genericapirequest.WithNamespace(ctx, namespace)
	obj, err := store.Get(ctx, name, &metav1.GetOptions{ResourceVersion: resourceVersion})
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("reading %s/%s: got a %T", namespace, name, obj)
	}
	return typed, nil
}

// Begin implements allocator.Store.
func (s *claimStore) Begin() allocator.Txn {
	return &claimTxn{txn: s.client.Txn(), store: s}
}

// claimTxn keys the objects of a transaction, and counts what it writes.
type claimTxn struct {
	txn   *etcdtxn.Txn
	store *claimStore
	// namespace is the namespace of the objects, and user is set by ChargeUser.
	namespace, user string
	// memory is how many bytes the objects count for beside their size.
	memory int
	// throttleable is set by AllowThrottling.
	throttleable bool
}

// CreateClaim implements allocator.Txn.
func (t *claimTxn) CreateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	t.namespace = claim.Namespace
	t.memory += etcdquota.MemoryBytes(claim)
	r := t.store.claimResource
	return t.txn.Create(ctx, r, r.Key(claim.Namespace, claim.Name), claim)
}

// UpdateClaim implements allocator.Txn.
func (t *claimTxn) UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	t.namespace = claim.Namespace
	t.memory += etcdquota.MemoryBytes(claim)
	r := t.store.claimResource
	return t.txn.Update(ctx, r, r.Key(claim.Namespace, claim.Name), claim, revisionOf(claim))
}

// ExpectClaim implements allocator.Txn.
func (t *claimTxn) ExpectClaim(claim *v1alpha1.SandboxClaim) error {
	t.namespace = claim.Namespace
	r := t.store.claimResource
	return t.txn.Expect(r, r.Key(claim.Namespace, claim.Name), revisionOf(claim))
}

// CreateSandbox implements allocator.Txn.
func (t *claimTxn) CreateSandbox(ctx context.Context, sb *v1alpha1.Sandbox) error {
	t.namespace = sb.Namespace
	t.memory += etcdquota.MemoryBytes(sb)
	r := t.store.sandboxResource
	return t.txn.Create(ctx, r, r.Key(sb.Namespace, sb.Name), sb)
}

// UpdateSandbox implements allocator.Txn.
func (t *claimTxn) UpdateSandbox(ctx context.Context, sb *v1alpha1.Sandbox) error {
	t.namespace = sb.Namespace
	t.memory += etcdquota.MemoryBytes(sb)
	r := t.store.sandboxResource
	return t.txn.Update(ctx, r, r.Key(sb.Namespace, sb.Name), sb, revisionOf(sb))
}

// Len implements allocator.Txn.
func (t *claimTxn) Len() int { return t.txn.Len() }

// Bytes implements allocator.Txn.
func (t *claimTxn) Bytes() int { return t.txn.Bytes() }

// AllowThrottling implements allocator.Txn.
func (t *claimTxn) AllowThrottling() { t.throttleable = true }

// ChargeUser implements allocator.Txn.
func (t *claimTxn) ChargeUser(name string) { t.user = name }

// Commit implements allocator.Txn. Sandboxes count at the size at which they are stored, with their
// pod templates. In the background there is no request, so the user is the one of ChargeUser.
func (t *claimTxn) Commit(ctx context.Context) error {
	write := etcdquota.Write{Namespace: t.namespace, User: t.user, Bytes: t.Bytes() + t.memory, Exempt: !t.throttleable}
	if _, ok := genericapirequest.UserFrom(ctx); ok && t.throttleable {
		_, write.Exempt = etcdquota.WriterFrom(ctx, t.store.exempt)
	}
	reservation, err := t.store.limiter.Reserve(write)
	if exceeded := (*etcdquota.ExceededError)(nil); errors.As(err, &exceeded) {
		return &allocator.ThrottledError{Reason: exceeded.Error(), RetryAfter: exceeded.RetryAfter}
	}
	err = t.txn.Commit(ctx)
	if etcdtxn.NothingWritten(err) {
		t.store.limiter.Cancel(reservation)
	}
	return err
}

// Guard implements allocator.Txn.
func (t *claimTxn) Guard(ctx context.Context, token string, now time.Time) error {
	return t.txn.Guard(ctx, t.store.guards, token, now)
}

// Release implements allocator.Txn.
func (t *claimTxn) Release() { t.txn.Release(t.store.guards) }

// Settle implements allocator.Txn. A binding is known by the sandbox's lock, which
// it keeps when its claim releases it.
func (t *claimTxn) Settle(ctx context.Context) (written bool, err error) {
	return t.txn.Settle(ctx, func(now, written runtime.Object) bool {
		is, isSandbox := now.(*v1alpha1.Sandbox)
		ours, wasSandbox := written.(*v1alpha1.Sandbox)
		return isSandbox && wasSandbox && is.Annotations[v1alpha1.AnnotationLock] == ours.Annotations[v1alpha1.AnnotationLock]
	})
}
