// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// resize returns how an update in place ends, which is at once: nothing is pulled. What
// is true of any pod is true here: its QoS class is for life, and no container runs
// FailImage.
func (c *Controller) resize(ctx context.Context, sandbox *v1alpha1.Sandbox) (inplace.Progress, error) {
	after, err := c.templates.ResolveSandbox(ctx, sandbox, c.lookup)
	if templates.ReasonFor(err) != "" {
		return inplace.Failed(err.Error()), nil
	}
	if err != nil {
		return inplace.Progress{}, err
	}
	before, err := c.before(ctx, sandbox)
	if err != nil {
		return inplace.Progress{}, err
	}
	goal := inplace.GoalOf(sandbox)
	progress := inplace.Simulate(before, after.Template, goal)
	if !goal.Image {
		return progress, nil
	}
	fails, err := wantsToFail(after.Template)
	if err != nil {
		return inplace.Progress{}, reconcile.TerminalError(err)
	}
	if fails {
		progress = inplace.Progress{Step: inplace.StepFailed, Image: inplace.ImageFailed, Message: failedMessage}
	}
	return progress, nil
}

// before is the pod template that a sandbox began with: that of the revision of its
// set. It is nil where that is not known any more, or there was none.
func (c *Controller) before(ctx context.Context, sandbox *v1alpha1.Sandbox) (*runtime.RawExtension, error) {
	for _, name := range podtemplate.PossibleHolders(sandbox) {
		template, err := c.lookup.SandboxTemplate(ctx, sandbox.Namespace, name)
		if err != nil {
			return nil, err
		}
		if template != nil {
			return template.Spec.Template, nil
		}
	}
	return nil, nil
}

// statusResized is the status of a sandbox whose resize has ended.
func statusResized(sandbox *v1alpha1.Sandbox, progress inplace.Progress, now time.Time) (v1alpha1.SandboxStatus, error) {
	status, err := statusAfter(observe, sandbox, nil, now)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	set := setter(&status, sandbox.Generation, now)
	c := progress.Condition()
	set(c.Type, c.Status, c.Reason, c.Message)
	if c := progress.ImageCondition(); c != nil {
		set(c.Type, c.Status, c.Reason, c.Message)
	}
	if progress.Image == inplace.ImageFailed {
		set(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, progress.Message)
	} else {
		set(v1alpha1.SandboxConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPodReady, "")
	}
	return status, nil
}
