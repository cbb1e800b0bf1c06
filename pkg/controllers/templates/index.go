// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/cacheindex"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const indexName = "sandlot.io/template-ref"

// Index finds in a manager's cache what refers to a template, straight or through
// others.
type Index struct {
	users, templates toolscache.Indexer
}

// For returns the index of what refers to templates among a cache's objects of the
// kind of an example: a SandboxSet or a Sandbox. Call it before the cache starts.
func For(ctx context.Context, c cache.Cache, users client.Object) (*Index, error) {
	templates, err := cacheindex.Add(ctx, c, &v1alpha1.SandboxTemplate{}, indexName, referredTo)
	if err != nil {
		return nil, err
	}
	indexed, err := cacheindex.Add(ctx, c, users, indexName, referredTo)
	if err != nil {
		return nil, err
	}
	return &Index{users: indexed, templates: templates}, nil
}

// referredTo is what an object's templateRef names.
func referredTo(object any) ([]string, error) {
	var namespace string
	var embedded *v1alpha1.EmbeddedSandboxTemplate
	switch object := object.(type) {
	case *v1alpha1.SandboxSet:
		namespace, embedded = object.Namespace, &object.Spec.EmbeddedSandboxTemplate
	case *v1alpha1.Sandbox:
		namespace, embedded = object.Namespace, &object.Spec.EmbeddedSandboxTemplate
	case *v1alpha1.SandboxTemplate:
		namespace, embedded = object.Namespace, &object.Spec.EmbeddedSandboxTemplate
	default:
		return nil, fmt.Errorf("indexing by template: got a %T", object)
	}
	ref := embedded.TemplateRef
	if ref == nil {
		return nil, nil
	}
	return []string{keyOf(ref.Kind, namespace, ref.Name)}, nil
}

func keyOf(kind, namespace, name string) string {
	if kind == "" {
		kind = v1alpha1.TemplateKindSandboxTemplate
	}
	return kind + "/" + namespace + "/" + name
}

// UsersOf returns what refers to a template. It is shared with the cache and must
// not be changed.
func (x *Index) UsersOf(kind, namespace, name string) ([]client.Object, error) {
	var users []client.Object
	first := keyOf(kind, namespace, name)
	seen := map[string]bool{first: true}
	next := []string{first}
	for range podtemplate.MaxChain {
		var further []string
		for _, key := range next {
			found, err := objectsAt(x.users, key)
			if err != nil {
				return nil, err
			}
			users = append(users, found...)
			between, err := objectsAt(x.templates, key)
			if err != nil {
				return nil, err
			}
			for _, template := range between {
				key := keyOf("", template.GetNamespace(), template.GetName())
				if !seen[key] {
					seen[key] = true
					further = append(further, key)
				}
			}
		}
		next = further
	}
	return users, nil
}

func objectsAt(indexer toolscache.Indexer, key string) ([]client.Object, error) {
	found, err := indexer.ByIndex(indexName, key)
	if err != nil {
		return nil, fmt.Errorf("looking up by template: %w", err)
	}
	objects := make([]client.Object, 0, len(found))
	for _, object := range found {
		typed, ok := object.(client.Object)
		if !ok {
			return nil, fmt.Errorf("the cache holds a %T", object)
		}
		objects = append(objects, typed)
	}
	return objects, nil
}

// Queue is what events fill.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Events calls wake for each object that refers to a template that came, changed
// or went. The templates are SandboxTemplates or PodTemplates.
func (x *Index) Events(wake func(user client.Object, q Queue)) handler.EventHandler {
	each := func(ctx context.Context, template client.Object, q Queue) {
		kind := v1alpha1.TemplateKindSandboxTemplate
		if _, ok := template.(*corev1.PodTemplate); ok {
			kind = v1alpha1.TemplateKindPodTemplate
		}
		users, err := x.UsersOf(kind, template.GetNamespace(), template.GetName())
		if err != nil {
			log.FromContext(ctx).Error(err, "Finding what refers to a template", "template", client.ObjectKeyFromObject(template))
			return
		}
		for _, user := range users {
			wake(user, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) { each(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) { each(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) { each(ctx, e.Object, q) },
	}
}
