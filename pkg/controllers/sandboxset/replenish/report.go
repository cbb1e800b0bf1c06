// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// removal is why a sandbox of a pool is deleted.
type removal string

const (
	removalEnded    removal = "ended"
	removalSurplus  removal = "surplus"
	removalOutdated removal = "outdated"
)

// Reasons of events on SandboxSets. They are OpenKruise's.
const (
	// EventSandboxCreated tells how many sandboxes were created for the pool.
	EventSandboxCreated = "SandboxCreated"
	// EventCreateSandboxFailed has the server's answer.
	EventCreateSandboxFailed = "CreateSandboxFailed"
	// EventSandboxScaledDown tells how many were too many.
	EventSandboxScaledDown = "SandboxScaledDown"
	// EventFailedSandboxDeleted tells how many had failed, or ended otherwise.
	EventFailedSandboxDeleted = "FailedSandboxDeleted"
	// EventRollingUpdate tells how many of an older revision are replaced.
	EventRollingUpdate = "RollingUpdate"
	// EventTemplateResolved tells that a template that could not be used can be.
	// That it cannot has the reason of the condition TemplateResolved.
	EventTemplateResolved = "TemplateResolved"
	// EventRevisionNotHeld tells that there is no SandboxTemplate for the revision of
	// a set with a template of its own. Its pool is kept all the same.
	EventRevisionNotHeld = "RevisionNotHeld"
)

// removalOf says why the plan removes a sandbox.
func (p *plan) removalOf(o *observation, sandbox *v1alpha1.Sandbox) removal {
	switch {
	case useOf(sandbox, o.now) == useGarbage:
		return removalEnded
	case p.rolling:
		return removalOutdated
	}
	return removalSurplus
}

// reportCreated tells how a round of creates went.
func (c *Controller) reportCreated(set *v1alpha1.SandboxSet, created int, err error) {
	sandboxesCreated.Add(float64(created))
	if created > 0 {
		c.event(set, corev1.EventTypeNormal, EventSandboxCreated, "Create", "Created %d sandboxes", created)
	}
	if failed(err) {
		writesFailed.WithLabelValues(operationCreate).Inc()
		c.event(set, corev1.EventTypeWarning, EventCreateSandboxFailed, "Create", "%s", cut(err.Error()))
	}
}

// reportRemoved tells how a round of deletes went.
func (c *Controller) reportRemoved(set *v1alpha1.SandboxSet, removed map[removal]int, err error) {
	for why, n := range removed {
		sandboxesDeleted.WithLabelValues(string(why)).Add(float64(n))
		switch why {
		case removalEnded:
			c.event(set, corev1.EventTypeNormal, EventFailedSandboxDeleted, "Delete", "Deleted %d sandboxes that had ended", n)
		case removalSurplus:
			c.event(set, corev1.EventTypeNormal, EventSandboxScaledDown, "Delete", "Deleted %d sandboxes that were too many", n)
		case removalOutdated:
			c.event(set, corev1.EventTypeNormal, EventRollingUpdate, "Delete", "Deleted %d sandboxes of an older revision", n)
		}
	}
	if failed(err) {
		writesFailed.WithLabelValues(operationDelete).Inc()
	}
}

// failed says whether the API refused, as opposed to this program being stopped.
func failed(err error) bool { return err != nil && !errors.Is(err, context.Canceled) }

// reportResolved tells that what a set refers to has come to resolve, or to do so
// no longer, or has another fault.
func (c *Controller) reportResolved(before *v1alpha1.SandboxSet, after *v1alpha1.SandboxSetStatus) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.SetConditionTemplateResolved)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.SetConditionTemplateResolved)
	switch {
	case is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message:
	case is.Status != metav1.ConditionTrue:
		c.event(before, corev1.EventTypeWarning, is.Reason, "Resolve", "%s", cut(is.Message))
	case was != nil && was.Status != metav1.ConditionTrue: // that all is well from the start is no news
		c.event(before, corev1.EventTypeNormal, EventTemplateResolved, "Resolve", "The template can be used again")
	}
}

// maxNote is how long the API lets the text of an event be.
const maxNote = 1024

func cut(note string) string {
	if len(note) <= maxNote {
		return note
	}
	const more = " ..."
	return strings.ToValidUTF8(note[:maxNote-len(more)], "") + more
}

// event records an event on a set, if events are on. The set is named without
// its resourceVersion, which changes with each of its statuses: then what happens
// again and again is one event that is counted up, and costs hardly a write.
func (c *Controller) event(set *v1alpha1.SandboxSet, kind, reason, action, note string, args ...any) {
	if c.recorder == nil {
		return
	}
	c.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       "SandboxSet",
		Namespace:  set.Namespace,
		Name:       set.Name,
		UID:        set.UID,
	}, nil, kind, reason, action, note, args...)
}
