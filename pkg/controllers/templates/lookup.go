// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates gets the templates that controllers resolve pod templates from, and
// has the reasons in conditions for why a template cannot be used.
package templates

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/incomplete"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Lookup finds templates in a manager's cache. Only the server is trusted when it says that a
// template is missing, because the cache may show an object before the template that it was
// created after.
type Lookup struct {
	// Cache reads from the cache. Required.
	Cache client.Reader
	// Server asks the server itself. Required.
	Server client.Reader
	// Cluster: there is a cluster, which may have PodTemplates.
	Cluster bool
}

var _ podtemplate.Lookup = (*Lookup)(nil)

// SandboxTemplate returns a SandboxTemplate, or nil.
func (l *Lookup) SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	return find(ctx, l, v1alpha1.TemplateKindSandboxTemplate, namespace, name, func() *v1alpha1.SandboxTemplate { return &v1alpha1.SandboxTemplate{} })
}

// PodTemplate returns a PodTemplate of the cluster, or nil.
func (l *Lookup) PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error) {
	if !l.Cluster {
		return nil, nil
	}
	return find(ctx, l, v1alpha1.TemplateKindPodTemplate, namespace, name, func() *corev1.PodTemplate { return &corev1.PodTemplate{} })
}

func find[T client.Object](ctx context.Context, l *Lookup, kind, namespace, name string, empty func() T) (T, error) {
	var none T
	key := types.NamespacedName{Namespace: namespace, Name: name}
	const server = 1
	for i, reader := range []client.Reader{l.Cache, server: l.Server} {
		object := empty()
		err := reader.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil && (i == server || !incomplete.Is(object)):
			return object, nil
		case err != nil && !apierrors.IsNotFound(err):
			return none, fmt.Errorf("getting %s %s: %w", kind, key, err)
		}
	}
	return none, nil
}

// ErrInvalid means that references and a patch lead to no valid pod template.
var ErrInvalid = errors.New("the pod template is not valid")

var reasons = []struct {
	err    error
	reason string
}{
	{podtemplate.ErrTemplateNotFound, v1alpha1.ReasonTemplateNotFound},
	{podtemplate.ErrTemplateCycle, v1alpha1.ReasonTemplateCycle},
	{podtemplate.ErrTemplateKind, v1alpha1.ReasonTemplateKindWrong},
	{podtemplate.ErrPatch, v1alpha1.ReasonInvalidPatch},
	{podtemplate.ErrNoTemplate, v1alpha1.ReasonInvalidTemplate},
	{podtemplate.ErrVolumes, v1alpha1.ReasonInvalidTemplate},
	{podtemplate.ErrRevision, v1alpha1.ReasonInvalidTemplate},
	{ErrInvalid, v1alpha1.ReasonInvalidTemplate},
}

// ReasonFor returns the reason in conditions for why a template cannot be used, or an
// empty string for an error that is not about the template.
func ReasonFor(err error) string {
	for _, known := range reasons {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return ""
}

// IsReason reports whether a reason is one that ReasonFor returns.
func IsReason(reason string) bool {
	for _, known := range reasons {
		if reason == known.reason {
			return true
		}
	}
	return false
}
