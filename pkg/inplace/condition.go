// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Texts in conditions. They are OpenKruise's, and clients compare them.
const (
	// infeasible is why a resize failed that the node refused.
	infeasible = "pod resize is infeasible"
	// forbidden begins the message of one that would change the QoS class.
	forbidden = "resource resize would change QoS class"
)

// InProgress reports whether a sandbox is being changed in place.
func InProgress(sb *v1alpha1.Sandbox) bool { return inProgress(&sb.Status) }

func inProgress(status *v1alpha1.SandboxStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	return c != nil && c.Status == metav1.ConditionFalse &&
		(c.Reason == v1alpha1.ReasonInplaceUpdating || c.Reason == v1alpha1.ReasonInplaceReverting)
}

// Forget removes what an earlier claim has left of its update on a sandbox that is
// about to be bound.
func Forget(sb *v1alpha1.Sandbox) {
	delete(sb.Annotations, v1alpha1.AnnotationInplaceUpdate)
	meta.RemoveStatusCondition(&sb.Status.Conditions, v1alpha1.SandboxConditionImageUpdated)
}

// Begin marks a sandbox that is being bound as being changed. Its generation is that of the
// binding.
func Begin(sb *v1alpha1.Sandbox, goal Goal, now time.Time) {
	goal.write(sb)
	c := Progress{Step: StepPatch}.Condition()
	setOnBinding(sb, c, now)
	c.Type = v1alpha1.SandboxConditionReady
	setOnBinding(sb, c, now)
}

// Fail notes on a sandbox that is being bound why it is not resized, though it
// is smaller than the claim asks for, or may be.
func Fail(sb *v1alpha1.Sandbox, now time.Time, why error) {
	setOnBinding(sb, Failed(why.Error()).Condition(), now)
}

func setOnBinding(sb *v1alpha1.Sandbox, c metav1.Condition, now time.Time) {
	c.ObservedGeneration, c.LastTransitionTime = sb.Generation, metav1.NewTime(now)
	meta.SetStatusCondition(&sb.Status.Conditions, c)
}

// Condition is the condition InplaceUpdate of a sandbox whose update is this far,
// without time and generation.
func (p Progress) Condition() metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.SandboxConditionInplaceUpdate, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonInplaceUpdating, Message: cmp.Or(p.Message, v1alpha1.InplaceUpdatingMessage),
	}
	switch p.Step {
	case StepPatch, StepWait:
	case StepRevert:
		c.Reason, c.Message = v1alpha1.ReasonInplaceReverting, p.Message
	case StepDone:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonSucceeded, p.Message
	case StepFailed:
		c.Reason, c.Message = v1alpha1.ReasonFailed, p.Message
	}
	return c
}

// ImageCondition is the condition ImageUpdated of a sandbox whose update is this far; nil
// where there is nothing to report of an image, or not yet.
func (p Progress) ImageCondition() *metav1.Condition {
	c := &metav1.Condition{Type: v1alpha1.SandboxConditionImageUpdated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded}
	switch p.Image {
	case ImageDone:
		return c
	case ImageFailed:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonFailed, p.Message
		return c
	}
	return nil
}

// LacksImage reports whether a sandbox could not be given the image that its claim asks
// for. One that could not be given the cpu is of use all the same; this one is not.
func LacksImage(sb *v1alpha1.Sandbox) bool {
	return meta.IsStatusConditionFalse(sb.Status.Conditions, v1alpha1.SandboxConditionImageUpdated)
}

// GiveUpImage sets the conditions of a sandbox whose image update is still in progress to failed,
// because its time is up. The message is the last one of the node, if there is one.
func GiveUpImage(sb *v1alpha1.Sandbox, now time.Time) {
	p := imageFailed("the image did not run in time")
	update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	if update.Message != v1alpha1.InplaceUpdatingMessage {
		p.Message = cmp.Or(update.Message, p.Message)
	}
	generation := update.ObservedGeneration
	for _, c := range []metav1.Condition{p.Condition(), *p.ImageCondition()} {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(&sb.Status.Conditions, c)
	}
}

// Failed is the progress of a resize that failed.
func Failed(why string) Progress {
	return Progress{Step: StepFailed, Message: v1alpha1.ResizeFailedMessage(why)}
}

// imageFailed is the progress of an update whose image cannot be had.
func imageFailed(why string) Progress {
	return Progress{Step: StepFailed, Message: v1alpha1.ImageUpdateFailedMessage(why), Image: ImageFailed}
}

// Aborted reports whether an update ends because of the phase of its sandbox, and how.
// A sandbox that is still to start has its pod made as it is to be, and so has one that
// is paused when it is resumed: its update continues, and ends when that pod is ready.
func Aborted(status *v1alpha1.SandboxStatus, goal Goal) (Progress, bool) {
	switch phase := status.Phase; phase {
	case v1alpha1.SandboxPending, v1alpha1.SandboxRunning, v1alpha1.SandboxPaused, v1alpha1.SandboxResuming:
		return Progress{}, false
	default:
		why := "the sandbox is " + strings.ToLower(string(phase))
		p := Failed(why)
		if goal.Image {
			p.Message = v1alpha1.ImageUpdateFailedMessage(why)
		}
		return p, inProgress(status)
	}
}

// IsForbidden reports whether a condition's message is that of a resize that failed
// because it would change the QoS class.
func IsForbidden(message string) bool { return strings.HasPrefix(message, forbidden) }
