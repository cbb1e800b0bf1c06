// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// resolver resolves what sandboxes refer to.
type resolver struct {
	lookup    *templates.Lookup
	templates *podtemplate.Cache
	injector  *injector
	// keepUnused takes what its set says of evictions from a sandbox.
	keepUnused bool
}

// whole returns a sandbox with its pod template and volumes in it, wherever they stand. What
// it returns is not to be changed. A template that cannot be used is a
// templateError.
func (r *resolver) whole(ctx context.Context, sandbox *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	if r.keepUnused && sandbox.Annotations[v1alpha1.AnnotationSafeToEvict] != "" {
		kept := *sandbox
		kept.Annotations = maps.Clone(sandbox.Annotations)
		delete(kept.Annotations, v1alpha1.AnnotationSafeToEvict)
		sandbox = &kept
	}
	full, err := r.templates.Whole(ctx, sandbox, r.lookup)
	if reason := templates.ReasonFor(err); reason != "" {
		return nil, templateError{error: err, reason: reason}
	}
	return full, err
}

// wholeWithRuntimes is whole, and returns the pod template with the sandbox's
// runtimes in it as well.
func (r *resolver) wholeWithRuntimes(
	ctx context.Context, sandbox *v1alpha1.Sandbox,
) (*v1alpha1.Sandbox, *runtime.RawExtension, error) {
	full, err := r.whole(ctx, sandbox)
	if err != nil {
		return nil, nil, err
	}
	template, err := r.injector.inject(ctx, full)
	return full, template, err
}
