// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// podTemplateTimeout bounds a question to the cluster.
const podTemplateTimeout = 5 * time.Second

// templateLookup finds what references name: SandboxTemplates in our own store,
// PodTemplates in the cluster.
type templateLookup struct {
	templates *genericregistry.Store
	// podTemplates is nil where there is no cluster.
	podTemplates corev1client.PodTemplatesGetter
}

var _ podtemplate.Lookup = &templateLookup{}

// SandboxTemplate implements podtemplate.Lookup: from the watch cache, and from
// etcd what was made only just now.
func (l *templateLookup) SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	template, err := l.cached().SandboxTemplate(ctx, namespace, name)
	if err != nil || template != nil {
		return template, err
	}
	return get[*v1alpha1.SandboxTemplate](ctx, l.templates, namespace, name, "")
}

// TemplatesNow implements allocator.Store.
func (l *templateLookup) TemplatesNow() podtemplate.Lookup { return templatesNow{l} }

// templatesNow finds SandboxTemplates as they are in etcd now.
type templatesNow struct{ *templateLookup }

// SandboxTemplate implements podtemplate.Lookup.
func (l templatesNow) SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	return get[*v1alpha1.SandboxTemplate](ctx, l.templates, namespace, name, "")
}

// cached returns a lookup that finds SandboxTemplates in the watch cache alone.
func (l *templateLookup) cached() podtemplate.Lookup { return templatesCached{l} }

type templatesCached struct{ *templateLookup }

// SandboxTemplate implements podtemplate.Lookup.
func (l templatesCached) SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	return get[*v1alpha1.SandboxTemplate](ctx, l.templates, namespace, name, "0")
}

// PodTemplate implements podtemplate.Lookup.
func (l *templateLookup) PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error) {
	if l.podTemplates == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, podTemplateTimeout)
	defer cancel()
	// Any state that the cluster has in memory will do, as with our own templates.
	template, err := l.podTemplates.PodTemplates(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err): // this server, which its clients must not read as their own
		return nil, apierrors.NewInternalError(fmt.Errorf("asking the cluster for PodTemplate %s/%s: %w", namespace, name, err))
	case err != nil:
		return nil, fmt.Errorf("asking the cluster for PodTemplate %s/%s: %w", namespace, name, err)
	}
	return template, nil
}
