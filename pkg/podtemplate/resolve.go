// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Lookup finds what a reference names. What it returns is shared and not to be
// changed; nil, nil means that there is none.
type Lookup interface {
	// SandboxTemplate returns a SandboxTemplate.
	SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error)
	// PodTemplate returns a PodTemplate of the cluster. Where there is no cluster
	// there are none.
	PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error)
}

var (
	// ErrTemplateNotFound means that a reference leads nowhere.
	ErrTemplateNotFound = errors.New("not found")
	// ErrTemplateCycle means that references lead back to where they began, or on
	// for too long.
	ErrTemplateCycle = errors.New("the references go round in a circle")
	// ErrTemplateKind means that a reference names a kind that is no template.
	ErrTemplateKind = errors.New("not a kind that can be referred to")
	// ErrPatch means that a patch is malformed, or does not fit the template.
	ErrPatch = errors.New("the patch cannot be applied")
)

// Resolved is a pod template at the end of all references, patched.
type Resolved struct {
	// Template is the pod template. It is shared and not to be changed.
	Template *runtime.RawExtension
	// Chain are the names of the templates on the way, the one that is referred to
	// first; empty for an inline template.
	Chain []string
	// Service is what the first SandboxTemplate of the chain says of services. It is
	// shared and not to be changed.
	Service *bool
	// NetworkManaged says that the first SandboxTemplate of the chain has a
	// NetworkPolicy, which selects pods by the name of that template.
	NetworkManaged bool
}

// service is a copy of what is said of services.
func (r *Resolved) service() *bool {
	if r == nil || r.Service == nil {
		return nil
	}
	return new(*r.Service)
}

// Inline is a pod template that stands where it is used, without references.
func Inline(template *runtime.RawExtension) *Resolved { return &Resolved{Template: template} }

// ResolveSet finds the pod template of a set's sandboxes, with the set's patch.
// lookup may be nil for a set that refers to none.
func ResolveSet(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup) (*Resolved, error) {
	return resolveSet(ctx, set, lookup, end.finish)
}

// ResolveTemplate finds the pod template at the end of a SandboxTemplate.
func ResolveTemplate(ctx context.Context, template *v1alpha1.SandboxTemplate, lookup Lookup) (*Resolved, error) {
	w := walk{lookup: lookup, namespace: template.Namespace}
	w.enter(v1alpha1.TemplateKindSandboxTemplate, template.Name)
	w.begin(template)
	resolved, err := resolve(ctx, &w, template, nil, end.finish)
	return resolved, about(err, v1alpha1.TemplateKindSandboxTemplate, template)
}

// ResolveSandbox finds the pod template of a sandbox.
func ResolveSandbox(ctx context.Context, sandbox *v1alpha1.Sandbox, lookup Lookup) (*Resolved, error) {
	return resolveSandbox(ctx, sandbox, lookup, end.finish)
}

// finisher makes the pod template out of what stands at the end of a chain. A
// Cache has one that remembers.
type finisher func(e end, patch *runtime.RawExtension) (*runtime.RawExtension, error)

func resolveSet(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup, finish finisher) (*Resolved, error) {
	resolved, err := resolveEmbedded(ctx, set.Namespace, &set.Spec.EmbeddedSandboxTemplate, set.Spec.Patch, lookup, finish)
	return resolved, about(err, "SandboxSet", set)
}

func resolveSandbox(ctx context.Context, sandbox *v1alpha1.Sandbox, lookup Lookup, finish finisher) (*Resolved, error) {
	resolved, err := resolveEmbedded(ctx, sandbox.Namespace, &sandbox.Spec.EmbeddedSandboxTemplate, nil, lookup, finish)
	return resolved, about(err, "Sandbox", sandbox)
}

// about says in an error what it is about.
func about(err error, kind string, object metav1.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
}

func resolveEmbedded(
	ctx context.Context, namespace string, embedded *v1alpha1.EmbeddedSandboxTemplate,
	patch *runtime.RawExtension, lookup Lookup, finish finisher,
) (*Resolved, error) {
	if embedded.Template != nil { // a patch is for references only
		return Inline(embedded.Template), nil
	}
	// An object of no kind, whose only part is where the walk begins.
	from := &v1alpha1.SandboxTemplate{}
	from.Spec.TemplateRef = embedded.TemplateRef
	return resolve(ctx, &walk{lookup: lookup, namespace: namespace}, from, patch, finish)
}

func resolve(
	ctx context.Context, w *walk, from *v1alpha1.SandboxTemplate,
	patch *runtime.RawExtension, finish finisher,
) (*Resolved, error) {
	e, err := w.follow(ctx, from)
	if err != nil {
		return nil, err
	}
	template, err := finish(e, patch)
	if err != nil {
		return nil, w.blame(err)
	}
	return &Resolved{Template: template, Chain: w.names(), Service: w.service, NetworkManaged: w.networkManaged}, nil
}
