// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
)

// pauseGrace is how many seconds a sandbox that is paused or recycled has to end.
const pauseGrace = 5

// act carries out a plan. The finalizer comes first and the status before the deletion
// of a pod: both are refused where the sandbox is not the version that the plan was made
// for, and then the pod stays.
func (c *Controller) act(ctx context.Context, key types.NamespacedName, o *observation, p plan) (reconcile.Result, error) {
	version, isCurrent, err := c.writer.writeMetadata(ctx, key, o.sandbox, &p)
	if err != nil || !isCurrent {
		return reconcile.Result{}, err
	}
	var requeueAfter time.Duration
	if p.action == actionCreate {
		if p, requeueAfter, err = c.create(ctx, key, o, p); err != nil {
			return reconcile.Result{}, err
		}
	}
	if p.resize != nil || p.image != nil {
		if p, requeueAfter, err = c.changer.askInPlace(ctx, key, o, p); err != nil {
			return reconcile.Result{}, err
		}
	}
	var labelErr error
	if p.action == actionLabel {
		delay := c.labeler.delay(o)
		if requeueAfter = max(requeueAfter, delay); delay == 0 {
			// Wrong metadata does not keep the status from being written.
			labelErr = c.labeler.label(ctx, o)
		}
	}
	var statusDelay time.Duration
	version, isCurrent, statusDelay, err = c.writeStatus(ctx, key, o, version, &p)
	if err = errors.Join(labelErr, err); err != nil || !isCurrent {
		return reconcile.Result{}, err
	}
	if p.action == actionRemove {
		if requeueAfter, err = c.remove(ctx, key, o, version, &p); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: queue.MinRequeue(statusDelay, c.requeueAfter(key, o, &p, requeueAfter))}, nil
}

// requeueAfter is after what time to look again, if what was done asks for again.
func (c *Controller) requeueAfter(key types.NamespacedName, o *observation, p *plan, requeueAfter time.Duration) time.Duration {
	if o.pod == nil {
		// Waiting for a pod of which there may be no event.
		requeueAfter = max(requeueAfter, c.memory.podExpectations.remaining(key), c.memory.createBackoff.remaining(key))
	}
	return queue.MinRequeue(p.requeueAfter, requeueAfter)
}

// writeStatus writes the status if it has changed, or returns how long the write must wait. A status
// is never delayed if the pod is about to be deleted.
func (c *Controller) writeStatus(
	ctx context.Context, key types.NamespacedName, o *observation, version string, p *plan,
) (after string, isCurrent bool, wait time.Duration, err error) {
	if isRecycling(o.sandbox) {
		c.memory.statusPacer.forget(key) // what one user causes does not delay the next one
	}
	if p.action != actionRemove {
		wait = c.memory.statusPacer.delay(key, o.sandbox, &p.status)
	}
	if wait > 0 {
		return version, true, wait, nil
	}
	after, isCurrent, err = c.writer.writeStatus(ctx, key, o.sandbox, version, p)
	return after, isCurrent, 0, err
}

// remove deletes this very pod, unless that was refused a moment ago. It returns after
// what time to look again. A refusal is reported like one of a create: in the status,
// and by an event.
func (c *Controller) remove(
	ctx context.Context, key types.NamespacedName, o *observation, version string, p *plan,
) (time.Duration, error) {
	if left := c.memory.deleteBackoff.remaining(key); left > 0 {
		return left, nil
	}
	err := c.client.Delete(ctx, o.pod, client.Preconditions{UID: new(o.pod.UID)}, client.GracePeriodSeconds(pauseGrace))
	switch {
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		c.memory.deleteBackoff.forget(key)
		return 0, nil // the cache is about to show it
	case !isRefusal(err):
		return 0, fmt.Errorf("deleting Pod %s/%s of a sandbox that is %s: %w", o.pod.Namespace, o.pod.Name, p.status.Phase, err)
	}
	c.memory.deleteBackoff.recordAttempt(key)
	c.recorder.Event(o.sandbox, corev1.EventTypeWarning, reasonPodDeleteFailed, err.Error())
	before := &v1alpha1.Sandbox{ObjectMeta: o.sandbox.ObjectMeta, Status: p.status}
	refused := plan{status: *p.status.DeepCopy()}
	if isRecycling(o.sandbox) {
		recycle.DeletionRefused(&refused.status, err.Error(), o.sandbox.Generation, o.now)
	} else {
		refused.setCondition(o, v1alpha1.SandboxConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonPending, err.Error())
	}
	_, _, err = c.writer.writeStatus(ctx, key, before, version, &refused)
	return c.memory.deleteBackoff.remaining(key), err
}
