// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expire ends claims when their spec.lifecycle is over: first the claim says so
// (Ready is False with the reason ClaimExpired), and that is final; then its sandboxes go,
// and the claim too, as spec.lifecycle.shutdownPolicy says.
//
// Each step is decided by what is stored, so that it does not matter which process takes
// it, nor whether one died before it. Only sandboxes that name the UID of the claim as
// their owner are touched, and of these not the ones that failed and are kept for
// debugging, which are not the claim's any more.
package expire

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandboxclaim/holdings"
)

// eventClaimExpired is the reason of the event that a claim has expired. It is
// agent-sandbox's.
const eventClaimExpired = "ClaimExpired"

// Controller ends claims.
type Controller struct {
	*lifetime.Timer[*v1alpha1.SandboxClaim]
	finder holdings.Finder
	// recordEvents: an event is recorded for each claim that expires.
	recordEvents bool
	recorder     report.Recorder
}

// New returns a Controller that ends up to workers claims at a time. It reads and writes
// through c; reader asks the server itself. With events it records one for each claim,
// which is a write.
func New(c client.Client, reader client.Reader, clk clock.PassiveClock, workers int, events bool) *Controller {
	controller := &Controller{
		finder:       holdings.Finder{Reader: reader},
		recordEvents: events, recorder: report.Recorder{Kind: "SandboxClaim", Action: "Expire"},
	}
	controller.Timer = &lifetime.Timer[*v1alpha1.SandboxClaim]{
		Controller: "sandboxclaim-expire", Kind: "SandboxClaim", Client: c, Clock: clk, Workers: workers,
		Empty: func() *v1alpha1.SandboxClaim { return &v1alpha1.SandboxClaim{} },
		Due:   func(claim *v1alpha1.SandboxClaim, _ time.Time) (time.Time, bool) { return due(claim) },
		Act:   controller.act,
	}
	return controller
}

// Register adds the controller to a manager.
func (c *Controller) Register(ctx context.Context, mgr ctrl.Manager) error {
	cache, err := index.NewByClaim(ctx, mgr.GetCache())
	if err != nil {
		return err
	}
	c.finder.Cache = cache
	if c.recordEvents {
		c.recorder.EventRecorder = mgr.GetEventRecorder(c.Name())
	}
	return c.Timer.Register(ctx, mgr)
}

// due returns when there is something to do for a claim, and reports whether there
// ever is. A claim that is being claimed is ended by the allocator, and then
// Completed.
func due(claim *v1alpha1.SandboxClaim) (time.Time, bool) {
	if claim.DeletionTimestamp != nil || claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		return time.Time{}, false
	}
	if v1alpha1.HasExpired(claim) {
		return time.Time{}, true // whatever its lifecycle says by now
	}
	return v1alpha1.LifecycleEnd(claim)
}

// act takes the next steps of the end of a claim.
func (c *Controller) act(ctx context.Context, claim *v1alpha1.SandboxClaim, end, now time.Time) error {
	if !isMarked(claim) {
		if err := c.mark(ctx, claim, now); err != nil {
			return err
		}
		log.FromContext(ctx).V(2).Info("Expired claim", "end", end, "shutdownPolicy", claim.Spec.Lifecycle.ShutdownPolicy)
		c.recordExpiry(claim)
		return nil // the claim as it is now is on its way
	}
	switch claim.Spec.Lifecycle.ShutdownPolicy {
	case v1alpha1.ShutdownDelete:
		if err := c.deleteSandboxes(ctx, claim); err != nil {
			return err
		}
		return c.deleteClaim(ctx, claim)
	case v1alpha1.ShutdownDeleteForeground:
		if err := c.ownSandboxes(ctx, claim); err != nil {
			return err
		}
		return c.deleteClaim(ctx, claim, client.PropagationPolicy(metav1.DeletePropagationForeground))
	default:
		if isSkipped(claim, meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady).Message) {
			return nil
		}
		return c.deleteSandboxes(ctx, claim)
	}
}

// isMarked reports whether a claim says that it has expired, in the words of the API. One
// that the allocator ended may use others.
func isMarked(claim *v1alpha1.SandboxClaim) bool {
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
	return v1alpha1.HasExpired(claim) && (ready.Message == v1alpha1.ClaimExpiredMessage || isSkipped(claim, ready.Message))
}

// mark lets this very version of a claim say that it has expired.
func (c *Controller) mark(ctx context.Context, claim *v1alpha1.SandboxClaim, now time.Time) error {
	message, err := c.expiredMessage(ctx, claim)
	if err != nil {
		return err
	}
	conditions := claim.DeepCopy().Status.Conditions
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonClaimExpired, Message: message, ObservedGeneration: expiredGeneration(claim),
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), // as it is stored
	})
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": claim.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return reconcile.TerminalError(fmt.Errorf("encoding the conditions of SandboxClaim %s/%s: %w", claim.Namespace, claim.Name, err))
	}
	target := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	if err := c.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("noting that SandboxClaim %s/%s has expired: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
