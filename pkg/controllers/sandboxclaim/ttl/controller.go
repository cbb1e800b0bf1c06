// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ttl deletes claims that have been Completed for longer than their
// spec.ttlAfterCompleted. It never touches a sandbox: those of a claim with
// reclaimPolicy Delete are owned by it and are garbage collected. A claim whose lifecycle
// is over stays until its sandboxes have gone because of that.
package ttl

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
)

// eventTTLDelete is the reason of the event that a claim is deleted because its
// time to live is over. It is OpenKruise's.
const eventTTLDelete = "SandboxClaimTTLDelete"

// cleanUp is after what time to look again whether the sandboxes of a claim are gone.
const cleanUp = time.Second

// Controller deletes claims after their time to live.
type Controller struct {
	*lifetime.Timer[*v1alpha1.SandboxClaim]
	// recordEvents: an event is recorded for each deletion.
	recordEvents bool
	recorder     report.Recorder
}

// New returns a Controller that deletes up to workers claims at a time. With events
// it records one for each, which is a write.
func New(c client.Client, clk clock.PassiveClock, workers int, events bool) *Controller {
	controller := &Controller{recordEvents: events, recorder: report.Recorder{Kind: "SandboxClaim", Action: "Delete"}}
	controller.Timer = &lifetime.Timer[*v1alpha1.SandboxClaim]{
		Controller: "sandboxclaim-ttl", Kind: "SandboxClaim", Client: c, Clock: clk, Workers: workers,
		Empty: func() *v1alpha1.SandboxClaim { return &v1alpha1.SandboxClaim{} },
		Due:   expiryOf,
		Act:   controller.deleteExpired,
	}
	return controller
}

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	if c.recordEvents {
		c.recorder.EventRecorder = mgr.GetEventRecorder(c.Name())
	}
	return c.Timer.Register(ctx, mgr)
}

func (c *Controller) deleteExpired(ctx context.Context, claim *v1alpha1.SandboxClaim, expiry, _ time.Time) error {
	if v1alpha1.HasExpired(claim) {
		if left, err := c.hasSandboxes(ctx, claim); err != nil || left {
			return cmp.Or(err, error(lifetime.AgainError(cleanUp)))
		}
	}
	if err := lifetime.Delete(ctx, c.Client, c.Kind, claim); err != nil {
		return err
	}
	log.FromContext(ctx).V(2).Info("Deleted expired claim", "expiry", expiry)
	c.recorder.Event(claim, corev1.EventTypeNormal, eventTTLDelete,
		"Deleted, its ttlAfterCompleted was over at "+expiry.UTC().Format(time.RFC3339))
	return nil
}

// hasSandboxes reports whether a claim has sandboxes that are not being deleted.
func (c *Controller) hasSandboxes(ctx context.Context, claim *v1alpha1.SandboxClaim) (bool, error) {
	sandbox := &v1alpha1.Sandbox{}
	for i := range claim.Status.Sandboxes {
		key := client.ObjectKey{Namespace: claim.Namespace, Name: claim.Status.Sandboxes[i].Name}
		err := c.Client.Get(ctx, key, sandbox, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("getting Sandbox %s: %w", key, err)
		}
		if err == nil && v1alpha1.IsBoundTo(sandbox, claim) && sandbox.DeletionTimestamp == nil && !v1alpha1.IsReservedFailed(sandbox) {
			return true, nil
		}
	}
	return false, nil
}

// expiryOf returns when a claim is to be deleted, and reports whether it ever is. Where
// the end of its lifecycle has come as well, that is first: nothing would end the
// sandboxes of a claim that is gone. And unless it retains the claim, it deletes that as
// well, in its own way.
func expiryOf(claim *v1alpha1.SandboxClaim, now time.Time) (time.Time, bool) {
	if claim.DeletionTimestamp != nil ||
		claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted ||
		claim.Status.CompletionTime == nil {
		return time.Time{}, false
	}
	ttl := v1alpha1.TTLAfterCompletedOf(&claim.Spec)
	if ttl < 0 {
		return time.Time{}, false
	}
	if v1alpha1.HasExpired(claim) {
		switch claim.Spec.Lifecycle.ShutdownPolicy {
		case v1alpha1.ShutdownDelete, v1alpha1.ShutdownDeleteForeground:
			return time.Time{}, false
		}
	} else if end, ok := v1alpha1.LifecycleEnd(claim); ok && !now.Before(end) {
		return time.Time{}, false // there is an event when it has expired
	}
	return claim.Status.CompletionTime.Add(ttl), true
}
