// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The kinds that are watched.
const (
	kindSandbox  = "Sandbox"
	kindClaim    = "SandboxClaim"
	kindSet      = "SandboxSet"
	kindTemplate = "SandboxTemplate"
)

// kind is a kind of owners or dependents.
type kind struct {
	object func() client.Object
	// list is nil for kinds that are never dependents.
	list func() client.ObjectList
	// dependents are the kinds of the dependents of an object of this kind.
	dependents []string
}

var kinds = map[string]kind{
	kindSandbox: {
		object:     func() client.Object { return &v1alpha1.Sandbox{} },
		list:       func() client.ObjectList { return &v1alpha1.SandboxList{} },
		dependents: []string{kindSandbox},
	},
	kindClaim: {
		object:     func() client.Object { return &v1alpha1.SandboxClaim{} },
		dependents: []string{kindSandbox},
	},
	kindSet: {
		object:     func() client.Object { return &v1alpha1.SandboxSet{} },
		dependents: []string{kindSandbox, kindTemplate},
	},
	kindTemplate: {
		object:     func() client.Object { return &v1alpha1.SandboxTemplate{} },
		list:       func() client.ObjectList { return &v1alpha1.SandboxTemplateList{} },
		dependents: []string{kindSandbox},
	},
}

// request names an object to reconcile.
type request struct {
	kind string
	types.NamespacedName
}

func (r request) String() string { return r.kind + " " + r.NamespacedName.String() }

func requestFor(kind string, object client.Object) request {
	return request{kind: kind, NamespacedName: client.ObjectKeyFromObject(object)}
}

func requestForOwner(namespace string, owner *metav1.OwnerReference) request {
	return request{kind: v1alpha1.OwnerKind(owner), NamespacedName: types.NamespacedName{Namespace: namespace, Name: owner.Name}}
}

// owners returns the owners of an object that are watched.
func owners(object client.Object) []metav1.OwnerReference {
	var watched []metav1.OwnerReference
	for _, owner := range object.GetOwnerReferences() {
		if isWatched(&owner) {
			watched = append(watched, owner)
		}
	}
	return watched
}

func isWatched(owner *metav1.OwnerReference) bool {
	isServed := func(gv schema.GroupVersion) bool { return gv.String() == owner.APIVersion }
	return slices.ContainsFunc(v1alpha1.ServedVersions, isServed) && kinds[v1alpha1.OwnerKind(owner)].object != nil
}

// uids returns the UIDs of the owners of an object.
func uids(object client.Object) []string {
	var all []string
	for _, owner := range object.GetOwnerReferences() {
		all = append(all, string(owner.UID))
	}
	return all
}

// ownerUID is the name of the index of dependents.
const ownerUID = "sandlot.io/owner-uid"

// addIndexes lets the cache find objects by the UIDs of their owners.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for name, kind := range kinds {
		if kind.list == nil {
			continue
		}
		if err := indexer.IndexField(ctx, kind.object(), ownerUID, uids); err != nil {
			return fmt.Errorf("indexing objects of kind %s by owner: %w", name, err)
		}
	}
	return nil
}

// versioned is a cache that knows the last revision that it has shown.
type versioned interface {
	LastStoreSyncResourceVersion() string
}

// cachesOf returns the caches of the kinds of dependents. An informer that does not show
// its cache is left out.
func cachesOf(ctx context.Context, informers cache.Cache) (map[string]versioned, error) {
	caches := map[string]versioned{}
	for name, kind := range kinds {
		if kind.list == nil {
			continue
		}
		informer, err := informers.GetInformer(ctx, kind.object(), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("getting the informer of objects of kind %s: %w", name, err)
		}
		if shown, ok := informer.(interface{ GetIndexer() toolscache.Indexer }); ok {
			caches[name] = shown.GetIndexer()
		}
	}
	return caches, nil
}

// eachDependent calls do for each dependent of an object in the cache. o may limit their
// number.
func (c *Controller) eachDependent(ctx context.Context, ownerKind string, owner client.Object, do func(request), o ...client.ListOption) error {
	o = append(o, client.InNamespace(owner.GetNamespace()),
		client.MatchingFields{ownerUID: string(owner.GetUID())}, client.UnsafeDisableDeepCopy)
	for _, name := range kinds[ownerKind].dependents {
		list := kinds[name].list()
		err := c.client.List(ctx, list, o...)
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				object, ok := item.(client.Object)
				if !ok {
					return fmt.Errorf("it holds a %T", item)
				}
				do(requestFor(name, object))
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("looking up the dependents of %s %s/%s: %w", ownerKind, owner.GetNamespace(), owner.GetName(), err)
		}
	}
	return nil
}

// patch sets a list in the metadata of the very version of an object that was read.
func (c *Controller) patch(ctx context.Context, req request, object client.Object, field string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             object.GetUID(),
		"resourceVersion": object.GetResourceVersion(),
		field:             value,
	}})
	if err != nil {
		return err
	}
	target := kinds[req.kind].object() // the object itself belongs to the cache
	target.SetNamespace(req.Namespace)
	target.SetName(req.Name)
	return c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}
