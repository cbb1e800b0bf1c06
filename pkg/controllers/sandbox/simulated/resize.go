// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/resize"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// verdict is how a resize ends, which is at once. There is no node that could have
// too little room. What is true of any pod is true here: its QoS class is for life.
func (c *Controller) verdict(ctx context.Context, sandbox *v1alpha1.Sandbox) (resize.Verdict, error) {
	after, err := c.templates.ResolveSandbox(ctx, sandbox, c.lookup)
	if templates.ReasonFor(err) != "" {
		return resize.Verdict{Step: resize.Fail, Message: v1alpha1.ResizeFailedMessage(err.Error())}, nil
	}
	if err != nil {
		return resize.Verdict{}, err
	}
	before, err := c.before(ctx, sandbox)
	if err != nil {
		return resize.Verdict{}, err
	}
	return compared(before, after.Template), nil
}

// before is the pod template that a sandbox began with: that of the revision of its
// set. It is nil where that is not known any more, or there was none.
func (c *Controller) before(ctx context.Context, sandbox *v1alpha1.Sandbox) (*runtime.RawExtension, error) {
	pool, revision := sandbox.Labels[v1alpha1.LabelSandboxPool], sandbox.Labels[v1alpha1.LabelTemplateHash]
	if pool == "" || revision == "" {
		return nil, nil
	}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: pool}}
	template, err := c.lookup.SandboxTemplate(ctx, sandbox.Namespace, podtemplate.RevisionName(set, revision))
	if err != nil || template == nil {
		return nil, err
	}
	return template.Spec.Template, nil
}

// compared says whether a sandbox can have the resources of another template.
func compared(before, after *runtime.RawExtension) resize.Verdict {
	if before == nil {
		return resize.Verdict{Step: resize.Done}
	}
	was, err := resize.Spec(before)
	if err != nil {
		return resize.Verdict{Step: resize.Fail, Message: v1alpha1.ResizeFailedMessage(err.Error())}
	}
	wanted, err := resize.Spec(after)
	if err != nil {
		return resize.Verdict{Step: resize.Fail, Message: v1alpha1.ResizeFailedMessage(err.Error())}
	}
	if from, to := resize.Class(was), resize.Class(wanted); from != to {
		return resize.Verdict{Step: resize.Refuse, Message: resize.Forbidden(from, to)}
	}
	return resize.Verdict{Step: resize.Done}
}

// statusResized is the status of a sandbox whose resize has ended.
func statusResized(sandbox *v1alpha1.Sandbox, verdict resize.Verdict, now time.Time) (v1alpha1.SandboxStatus, error) {
	status, err := statusAfter(observe, sandbox, nil, now)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	updated, reason := metav1.ConditionTrue, v1alpha1.ReasonSucceeded
	if verdict.Step != resize.Done {
		updated, reason = metav1.ConditionFalse, v1alpha1.ReasonFailed
	}
	set := setter(&status, sandbox.Generation, now)
	set(v1alpha1.SandboxConditionInplaceUpdate, updated, reason, verdict.Message)
	set(v1alpha1.SandboxConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPodReady, "")
	return status, nil
}
