// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
)

// whole returns a sandbox with its pod template in it, wherever that stands. What
// it returns is not to be changed. A template that cannot be used is a
// templateError.
func (c *Controller) whole(ctx context.Context, sandbox *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	if sandbox.Spec.Template != nil {
		return sandbox, nil
	}
	resolved, err := c.templates.ResolveSandbox(ctx, sandbox, c.lookup)
	if err != nil {
		if reason := templates.ReasonFor(err); reason != "" {
			return nil, templateError{error: err, reason: reason}
		}
		return nil, err
	}
	full := *sandbox
	full.Spec.Template = resolved.Template
	return &full, nil
}

// wholeWithRuntimes is whole, and returns the pod template with the sandbox's
// runtimes in it as well.
func (c *Controller) wholeWithRuntimes(
	ctx context.Context, sandbox *v1alpha1.Sandbox,
) (*v1alpha1.Sandbox, *runtime.RawExtension, error) {
	full, err := c.whole(ctx, sandbox)
	if err != nil {
		return nil, nil, err
	}
	template, err := c.injector.inject(ctx, full)
	return full, template, err
}

// templateError means that a sandbox waits for its template, or for its runtimes. A
// change of a template or of the ConfigMap ends that, and brings the sandbox here
// again.
type templateError struct {
	error
	reason string
}

func (e templateError) Unwrap() error { return e.error }

// withoutTemplate is the plan where the pod could not be made for want of a
// template.
func (o *observation) withoutTemplate(err templateError) plan {
	p := o.refused(nil)
	p.status.Message = truncated(err.Error())
	o.setReady(&p, metav1.ConditionFalse, err.reason, err.Error())
	return p
}

// waitsForTemplate says whether a status says that there is no template, or that a
// runtime is missing in it.
func waitsForTemplate(status *v1alpha1.SandboxStatus) bool {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionReady)
	return ready != nil && (templates.IsReason(ready.Reason) || isRuntimeReason(ready.Reason))
}

func asTemplateError(err error) (templateError, bool) {
	return errors.AsType[templateError](err)
}

// wakeUser queues a sandbox that may be waiting for the template that changed.
// Those that run have nothing to do with it any more.
func wakeUser(user client.Object, q queue) {
	sandbox, ok := user.(*v1alpha1.Sandbox)
	if !ok {
		return
	}
	switch sandbox.Status.Phase {
	case "", v1alpha1.SandboxPending, v1alpha1.SandboxResuming:
		q.Add(requestFor(sandbox))
	}
}
