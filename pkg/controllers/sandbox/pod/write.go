// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/inplace"
)

// fieldOwner is the manager of the fields of pods that this controller writes.
const fieldOwner = client.FieldOwner("sandlot-controller-manager")

// Reasons of events.
const (
	// reasonInplaceUpdateFailed: the pod does not get the resources, or the image, that
	// the claim asks for.
	reasonInplaceUpdateFailed = "InplaceUpdateFailed"
	// reasonInplaceUpdateForbidden: the pod cannot get them, because of its QoS class.
	reasonInplaceUpdateForbidden = "InplaceUpdateForbidden"
	// reasonPodOwnerMismatch: a pod that the sandbox does not own has its name.
	reasonPodOwnerMismatch = "PodOwnerMismatch"
	// reasonPodUpdateFailed: the pod must not have the metadata that the sandbox wants.
	reasonPodUpdateFailed = "PodUpdateFailed"
	// reasonPodDeleteFailed: the pod must not be deleted, and the sandbox neither paused nor
	// recycled.
	reasonPodDeleteFailed = "PodDeleteFailed"
	// reasonTerminating: a paused sandbox is deleted.
	reasonTerminating = "Sandbox" + string(v1alpha1.SandboxTerminating)
)

// writer writes sandboxes, and records the events that go with that.
type writer struct {
	client      client.Client
	recorder    *report.Recorder
	superseded  *superseded
	statusPacer statusPacer
}

// writeMetadata adds or removes the finalizer, and the annotation with the pod's name. It
// returns the version of the sandbox after that, and false where the sandbox is no longer
// that version: then there is an event on its way.
func (w *writer) writeMetadata(
	ctx context.Context, key types.NamespacedName, sandbox *v1alpha1.Sandbox, p *plan,
) (string, bool, error) {
	metadata := map[string]any{}
	finalizes := slices.Contains(sandbox.Finalizers, v1alpha1.FinalizerSandbox) != p.wantsFinalizer
	if finalizes {
		finalizers := append([]string{}, sandbox.Finalizers...) // not nil, which would leave them as they are
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == v1alpha1.FinalizerSandbox })
		if p.wantsFinalizer {
			finalizers = append(finalizers, v1alpha1.FinalizerSandbox)
		}
		metadata["finalizers"] = finalizers
	}
	switch name, named := sandbox.Annotations[v1alpha1.AgentAnnotationPodName]; {
	case p.podNameAction == setPodName && name != sandbox.Name:
		metadata["annotations"] = map[string]any{v1alpha1.AgentAnnotationPodName: sandbox.Name}
	case p.podNameAction == dropPodName && named:
		metadata["annotations"] = map[string]any{v1alpha1.AgentAnnotationPodName: nil}
	}
	if len(metadata) == 0 {
		return sandbox.ResourceVersion, true, nil
	}
	metadata["resourceVersion"] = sandbox.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return "", false, err
	}
	written := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	err = w.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("writing the metadata of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	w.superseded.recordWrite(key, sandbox.ResourceVersion, written.ResourceVersion)
	if finalizes && sandbox.DeletionTimestamp != nil {
		w.recorder.Event(sandbox, corev1.EventTypeNormal, reasonTerminating, "Delete sandbox")
	}
	return written.ResourceVersion, true, nil
}

// writeStatus writes the status, if it changed. It returns the version of the
// sandbox after that, and false where the sandbox is no longer that version.
func (w *writer) writeStatus(
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
	err := w.client.Status().Patch(ctx, after, patch)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("writing the status of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	w.superseded.recordWrite(key, version, after.ResourceVersion)
	w.statusPacer.recordWrite(sandbox, after)
	w.reportPhase(before, after)
	w.warn(before, after, p.hasForeignPod)
	w.warnResize(before, after)
	return after.ResourceVersion, true, nil
}

// reportPhase records the event that goes with a change of the phase. Reasons and
// messages are OpenKruise's. The start of a sandbox of a pool is among the set's
// events: two more for each would double what a refill writes to the cluster's etcd.
func (w *writer) reportPhase(before, after *v1alpha1.Sandbox) {
	if before.Status.Phase == after.Status.Phase && len(before.Status.Conditions) > 0 {
		return
	}
	eventType := corev1.EventTypeNormal
	var message string
	switch after.Status.Phase {
	case v1alpha1.SandboxPending:
		message = "Start sandbox"
	case v1alpha1.SandboxRunning:
		message = "Sandbox started"
		switch before.Status.Phase {
		case v1alpha1.SandboxResuming:
			message = "Sandbox resumed"
		case v1alpha1.SandboxRecycling:
			w.recorder.Event(after, eventType, v1alpha1.ReasonRecyclingSucceeded, "The sandbox is back in its pool")
			w.recorder.Event(after, eventType, "Sandbox"+string(after.Status.Phase), "Sandbox recycled")
			return
		}
	case v1alpha1.SandboxPaused:
		message = "Pause sandbox"
		if v1alpha1.SandboxExpired(after) {
			message = expiredMessage
		}
	case v1alpha1.SandboxResuming:
		message = "Resume sandbox"
	case v1alpha1.SandboxSucceeded:
		message = "Sandbox succeeded"
	case v1alpha1.SandboxFailed:
		eventType, message = corev1.EventTypeWarning, "Sandbox failed"
	default:
		return
	}
	if eventType == corev1.EventTypeNormal && v1alpha1.IsInPool(after) {
		return
	}
	w.recorder.Event(after, eventType, "Sandbox"+string(after.Status.Phase), message)
}

// warn records the events of a sandbox that cannot get its pod, once for each
// state of that.
func (w *writer) warn(before, after *v1alpha1.Sandbox, hasForeignPod bool) {
	const conditionType = v1alpha1.SandboxConditionReady
	ready := meta.FindStatusCondition(after.Status.Conditions, conditionType)
	if ready == nil || ready.Reason != v1alpha1.ReasonPodCreateFailed && !isRuntimeReason(ready.Reason) {
		return
	}
	if old := meta.FindStatusCondition(before.Status.Conditions, conditionType); old != nil && old.Reason == ready.Reason && old.Message == ready.Message {
		return
	}
	reason := ready.Reason
	if hasForeignPod {
		reason = reasonPodOwnerMismatch
	}
	w.recorder.Event(after, corev1.EventTypeWarning, reason, ready.Message)
}

// warnResize records the event of an update in place that failed.
func (w *writer) warnResize(before, after *v1alpha1.Sandbox) {
	const conditionType = v1alpha1.SandboxConditionInplaceUpdate
	now := meta.FindStatusCondition(after.Status.Conditions, conditionType)
	if now == nil || now.Reason != v1alpha1.ReasonFailed || hasReason(before.Status.Conditions, conditionType, now.Reason) {
		return
	}
	reason := reasonInplaceUpdateFailed
	if inplace.IsForbidden(now.Message) {
		reason = reasonInplaceUpdateForbidden
	}
	w.recorder.Event(after, corev1.EventTypeWarning, reason, now.Message)
}
