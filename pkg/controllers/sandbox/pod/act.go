// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// pauseGrace is how many seconds a sandbox that is paused has to end.
const pauseGrace = 5

// act carries out a plan. The finalizer comes first and the status before the
// deletion of a pod: both are refused where the sandbox is not as it was judged,
// and then the pod stays.
func (c *Controller) act(ctx context.Context, key types.NamespacedName, o *observation, p plan) (reconcile.Result, error) {
	version, current, err := c.writeFinalizer(ctx, key, o.sandbox, p.finalizer)
	if err != nil || !current {
		return reconcile.Result{}, err
	}
	var again time.Duration
	if p.action == create {
		if p, again, err = c.create(ctx, key, o); err != nil {
			return reconcile.Result{}, err
		}
	}
	if p.resize != nil {
		if p, again, err = c.resize(ctx, key, o, p); err != nil {
			return reconcile.Result{}, err
		}
	}
	var labelErr error
	if p.action == label {
		later := c.labelLater(o)
		if again = max(again, later); later == 0 {
			// What is wrong with the metadata does not keep the status from being told.
			labelErr = c.label(ctx, o)
		}
	}
	version, current, err = c.writeStatus(ctx, key, o.sandbox, version, &p)
	if err = errors.Join(labelErr, err); err != nil || !current {
		return reconcile.Result{}, err
	}
	if p.action == remove {
		if again, err = c.remove(ctx, key, o, version, &p); err != nil {
			return reconcile.Result{}, err
		}
	}
	if o.pod == nil {
		// Waiting for a pod of which there may be no event.
		again = max(again, c.expectations.left(key), c.creates.left(key))
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// writeFinalizer adds or removes the finalizer. It returns the version of the
// sandbox after that, and false where the sandbox is no longer what was judged:
// then there is an event on its way.
func (c *Controller) writeFinalizer(
	ctx context.Context, key types.NamespacedName, sandbox *v1alpha1.Sandbox, want bool,
) (string, bool, error) {
	if slices.Contains(sandbox.Finalizers, v1alpha1.FinalizerSandbox) == want {
		return sandbox.ResourceVersion, true, nil
	}
	finalizers := []string{} // not nil, which would leave them as they are
	for _, finalizer := range sandbox.Finalizers {
		if finalizer != v1alpha1.FinalizerSandbox {
			finalizers = append(finalizers, finalizer)
		}
	}
	if want {
		finalizers = append(finalizers, v1alpha1.FinalizerSandbox)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": sandbox.ResourceVersion,
		"finalizers":      finalizers,
	}})
	if err != nil {
		return "", false, err
	}
	written := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	err = c.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("writing the finalizers of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	c.superseded.wrote(key, sandbox.ResourceVersion, written.ResourceVersion)
	if sandbox.DeletionTimestamp != nil {
		c.event(sandbox, corev1.EventTypeNormal, reasonTerminating, "Delete sandbox")
	}
	return written.ResourceVersion, true, nil
}

// reasonTerminating is the reason of the event about the end of a paused sandbox.
const reasonTerminating = "Sandbox" + string(v1alpha1.SandboxTerminating)

// writeStatus writes the status, if it changed. It returns the version of the
// sandbox after that, and false where the sandbox is no longer what was judged.
func (c *Controller) writeStatus(
	ctx context.Context, key types.NamespacedName, sandbox *v1alpha1.Sandbox, version string, p *plan,
) (string, bool, error) {
	if equality.Semantic.DeepEqual(sandbox.Status, p.status) {
		return version, true, nil
	}
	// Without the spec, which is large and not written anyway.
	before := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name, UID: sandbox.UID, ResourceVersion: version},
		Status:     sandbox.Status,
	}
	after := before.DeepCopy()
	after.Status = p.status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := c.client.Status().Patch(ctx, after, patch)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("writing the status of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	c.superseded.wrote(key, version, after.ResourceVersion)
	c.report(before, after)
	c.warn(before, after, p.mismatch)
	c.warnResize(before, after)
	return after.ResourceVersion, true, nil
}

// label gives the pod the metadata that the sandbox wants by now.
func (c *Controller) label(ctx context.Context, o *observation) error {
	sandbox, err := c.whole(ctx, o.sandbox)
	if _, missing := asTemplateError(err); missing {
		return nil // the pod stays as it is until there is one
	}
	if err != nil {
		return fmt.Errorf("the template of Sandbox %s/%s: %w", o.sandbox.Namespace, o.sandbox.Name, err)
	}
	patch, err := podtemplate.PodMetadataPatch(sandbox, o.revision, o.pod.UID, o.pod.Annotations)
	if err != nil {
		return fmt.Errorf("the metadata of Pod %s/%s: %w", o.pod.Namespace, o.pod.Name, err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.pod.Namespace, Name: o.pod.Name}}
	err = c.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	if client.IgnoreNotFound(err) != nil && !isAnother(err) {
		if isRefusal(err) {
			c.event(o.sandbox, corev1.EventTypeWarning, reasonPodUpdateFailed, err.Error())
		}
		return fmt.Errorf("patching the metadata of Pod %s/%s: %w", o.pod.Namespace, o.pod.Name, err)
	}
	return nil
}

// isAnother says whether a patch was refused because the object of that name is
// not the one that it was for.
func isAnother(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// remove deletes this very pod, unless that was refused a moment ago. It returns
// after what time to look again. A refusal is told like one of a create: in the
// status, and by an event.
func (c *Controller) remove(
	ctx context.Context, key types.NamespacedName, o *observation, version string, p *plan,
) (time.Duration, error) {
	if left := c.removes.left(key); left > 0 {
		return left, nil
	}
	err := c.client.Delete(ctx, o.pod.DeepCopy(), client.Preconditions{UID: new(o.pod.UID)}, client.GracePeriodSeconds(pauseGrace))
	switch {
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		c.removes.forget(key)
		return 0, nil // the cache is about to show it
	case !isRefusal(err):
		return 0, fmt.Errorf("deleting Pod %s/%s to pause its sandbox: %w", o.pod.Namespace, o.pod.Name, err)
	}
	c.removes.tried(key)
	c.event(o.sandbox, corev1.EventTypeWarning, reasonPodDeleteFailed, err.Error())
	before := &v1alpha1.Sandbox{ObjectMeta: o.sandbox.ObjectMeta, Status: p.status}
	told := plan{status: *p.status.DeepCopy()}
	o.setCondition(&told, v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonPending, err.Error())
	_, _, err = c.writeStatus(ctx, key, before, version, &told)
	return c.removes.left(key), err
}
