// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The kinds that are looked at.
const (
	kindSandbox  = "Sandbox"
	kindClaim    = "SandboxClaim"
	kindSet      = "SandboxSet"
	kindTemplate = "SandboxTemplate"
)

// kind is a kind of objects that are owned or own others.
type kind struct {
	object func() client.Object
	// list is nil for kinds of objects that are not owned.
	list func() client.ObjectList
	// owns are the kinds of what an object of this kind may own.
	owns []string
}

var kinds = map[string]kind{
	kindSandbox: {
		object: func() client.Object { return &v1alpha1.Sandbox{} },
		list:   func() client.ObjectList { return &v1alpha1.SandboxList{} },
		owns:   []string{kindSandbox},
	},
	kindClaim: {
		object: func() client.Object { return &v1alpha1.SandboxClaim{} },
		owns:   []string{kindSandbox},
	},
	kindSet: {
		object: func() client.Object { return &v1alpha1.SandboxSet{} },
		owns:   []string{kindSandbox, kindTemplate},
	},
	kindTemplate: {
		object: func() client.Object { return &v1alpha1.SandboxTemplate{} },
		list:   func() client.ObjectList { return &v1alpha1.SandboxTemplateList{} },
		owns:   []string{kindSandbox},
	},
}

// request names an object to look at.
type request struct {
	kind string
	types.NamespacedName
}

func (r request) String() string { return r.kind + " " + r.NamespacedName.String() }

func requestFor(kind string, object client.Object) request {
	return request{kind: kind, NamespacedName: client.ObjectKeyFromObject(object)}
}

// owners returns the owners of an object that are looked at.
func owners(object client.Object) []metav1.OwnerReference {
	var ours []metav1.OwnerReference
	for _, owner := range object.GetOwnerReferences() {
		if isOurs(&owner) {
			ours = append(ours, owner)
		}
	}
	return ours
}

func isOurs(owner *metav1.OwnerReference) bool {
	return owner.APIVersion == v1alpha1.SchemeGroupVersion.String() && kinds[owner.Kind].object != nil
}

// ownerUID is the name of the index of owned objects.
const ownerUID = "sandlot.io/owner-uid"

// addIndexes lets the cache find objects by the UIDs of their owners.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for name, kind := range kinds {
		if kind.list == nil {
			continue
		}
		err := indexer.IndexField(ctx, kind.object(), ownerUID, func(object client.Object) []string {
			var uids []string
			for _, owner := range object.GetOwnerReferences() {
				uids = append(uids, string(owner.UID))
			}
			return uids
		})
		if err != nil {
			return fmt.Errorf("indexing objects of kind %s by owner: %w", name, err)
		}
	}
	return nil
}

// cachesOf returns the caches of the kinds that are owned. An informer that does not
// show its cache is left out.
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

// ownedBy calls do for each object that the cache shows as owned by an object of a
// kind. o may say how many are enough.
func (c *Controller) ownedBy(ctx context.Context, ownerKind string, owner client.Object, do func(request), o ...client.ListOption) error {
	o = append(o, client.InNamespace(owner.GetNamespace()),
		client.MatchingFields{ownerUID: string(owner.GetUID())}, client.UnsafeDisableDeepCopy)
	for _, name := range kinds[ownerKind].owns {
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
			return fmt.Errorf("looking up what %s %s/%s owns: %w", ownerKind, owner.GetNamespace(), owner.GetName(), err)
		}
	}
	return nil
}
