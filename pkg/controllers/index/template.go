// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const templateIndex = "sandlot.io/template-ref"

// ByTemplate finds objects by the template that they refer to, directly or through
// other templates.
type ByTemplate struct {
	users, templates toolscache.Indexer
}

// NewByTemplate returns the index of a cache's objects of the kind of an example, a
// SandboxSet or a Sandbox. Call it before the cache starts.
func NewByTemplate(ctx context.Context, c cache.Cache, kind client.Object) (*ByTemplate, error) {
	templates, err := Add(ctx, c, &v1alpha1.SandboxTemplate{}, templateIndex, templateRef)
	if err != nil {
		return nil, err
	}
	users, err := Add(ctx, c, kind, templateIndex, templateRef)
	if err != nil {
		return nil, err
	}
	return &ByTemplate{users: users, templates: templates}, nil
}

// templateRef returns the key of the template that an object refers to.
func templateRef(object any) ([]string, error) {
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
	return []string{templateKey(ref.Kind, namespace, ref.Name)}, nil
}

func templateKey(kind, namespace, name string) string {
	if kind == "" {
		kind = v1alpha1.TemplateKindSandboxTemplate
	}
	return kind + "/" + namespace + "/" + name
}

// UsersOf returns the objects that refer to a template. They are shared with the cache
// and must not be changed.
func (x *ByTemplate) UsersOf(kind, namespace, name string) ([]client.Object, error) {
	var users []client.Object
	first := templateKey(kind, namespace, name)
	seen := map[string]bool{first: true}
	next := []string{first}
	for range podtemplate.MaxChain {
		var further []string
		for _, key := range next {
			found, err := lookup[client.Object](x.users, templateIndex, key)
			if err != nil {
				return nil, err
			}
			users = append(users, found...)
			between, err := lookup[client.Object](x.templates, templateIndex, key)
			if err != nil {
				return nil, err
			}
			for _, template := range between {
				key := templateKey("", template.GetNamespace(), template.GetName())
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

// Events returns a handler that calls enqueue for each object that refers to a template
// that was created, changed or deleted, a SandboxTemplate or a PodTemplate.
func (x *ByTemplate) Events(enqueue func(user client.Object, q queue.Interface)) handler.EventHandler {
	each := func(ctx context.Context, template client.Object, q queue.Interface) {
		kind := v1alpha1.TemplateKindSandboxTemplate
		if _, ok := template.(*corev1.PodTemplate); ok {
			kind = v1alpha1.TemplateKindPodTemplate
		}
		users, err := x.UsersOf(kind, template.GetNamespace(), template.GetName())
		if err != nil {
			log.FromContext(ctx).Error(err, "Failed to look up the objects that refer to a template", "template", client.ObjectKeyFromObject(template))
			return
		}
		for _, user := range users {
			enqueue(user, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue.Interface) { each(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue.Interface) { each(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue.Interface) { each(ctx, e.Object, q) },
	}
}
