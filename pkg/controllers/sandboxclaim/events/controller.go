// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events records events on SandboxClaims. An event is a write to the
// cluster's own etcd, where a claim is none, so by default only claims that had to wait,
// or that ended with less than they asked for, get any: a burst that the pools can serve
// writes nothing there.
package events

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// Reasons of events on SandboxClaims. All but ClaimIncomplete are OpenKruise's.
const (
	// eventNoAvailableSandboxes is a warning that a claim waits.
	eventNoAvailableSandboxes = "NoAvailableSandboxes"
	// eventSandboxClaimed: a claim that waits got some of its sandboxes.
	eventSandboxClaimed = "SandboxClaimed"
	// eventClaimCompleted: the claim has all it asked for.
	eventClaimCompleted = "ClaimCompleted"
	// eventClaimIncomplete is a warning that a claim ended with less than it asked for.
	eventClaimIncomplete = "ClaimIncomplete"
)

// minWait is how long a claim must have waited to get an event. The start of the wait is
// known to the second, so it may be up to a second less.
const minWait = 2 * time.Second

const (
	// shortsPerSecond is how many claims a second of a namespace get an event because they ended short
	// at once, and shortBurst how many at once.
	shortsPerSecond = 1
	shortBurst      = 20
)

// Controller records events on claims.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
	// all records the completion of every claim, a write for each. Otherwise only claims
	// that had to wait get events.
	all      bool
	recorder report.Recorder

	// shorts limits, for each namespace, the events of claims that end short without having waited.
	shorts *fairness.SharedLimiters

	mu sync.Mutex
	// reported has the claims that got an event, or are about to, and whose completion
	// therefore is an event.
	reported map[types.UID]progress
}

// progress is what was reported of a claim.
type progress struct {
	// claimed is how many sandboxes it had by then.
	claimed int32
	// cause reports whether an event said why what it waits for cannot start.
	cause bool
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that reads through c. With all it records the completion of
// every claim, and otherwise only that of claims that had to wait.
func New(c client.Client, clk clock.PassiveClock, all bool) *Controller {
	return &Controller{
		client: c, clock: clk, all: all,
		recorder: report.Recorder{Kind: "SandboxClaim", Action: "Claim"},
		shorts:   fairness.NewSharedLimiters(shortsPerSecond, shortBurst), reported: map[types.UID]progress{},
	}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxclaim-events" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	c.recorder.EventRecorder = mgr.GetEventRecorder(c.Name())
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		// One worker: recording hands on to the recorder's own queue.
		WithOptions(queue.Options(1)).
		Watches(&v1alpha1.SandboxClaim{}, c.events()).
		Complete(c)
}

// events queues a claim when it has waited for a while, when it comes to say why, and when
// it is completed after that. A claim that was bound by its create is queued only if it
// ended short, or all completions are recorded, except those from before this program
// started.
func (c *Controller) events() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) {
			if claim, ok := e.Object.(*v1alpha1.SandboxClaim); ok && (unfinished(claim) || !e.IsInInitialList) {
				c.enqueue(claim, false, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			before, okBefore := e.ObjectOld.(*v1alpha1.SandboxClaim)
			after, okAfter := e.ObjectNew.(*v1alpha1.SandboxClaim)
			if okBefore && okAfter && before.UID != after.UID {
				c.forget(before.UID) // deleted and created again, which the cache shows as an update
			}
			if okBefore && okAfter && (before.UID != after.UID || saysMore(before, after)) {
				c.enqueue(after, !unfinished(before) && before.UID == after.UID, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue.Interface) {
			c.forget(e.Object.GetUID())
		},
	}
}

// saysMore reports whether a change of a claim may be an event.
func saysMore(before, after *v1alpha1.SandboxClaim) bool {
	return before.Status.Phase != after.Status.Phase ||
		before.Status.ClaimedReplicas != after.Status.ClaimedReplicas ||
		unfinished(after) && claims.HasStartProblem(after) && !claims.HasStartProblem(before)
}

// enqueue queues a claim if there may be an event to record on it. ended is whether its end
// is no news.
func (c *Controller) enqueue(claim *v1alpha1.SandboxClaim, ended bool, q queue.Interface) {
	request := queue.RequestFor(claim)
	if unfinished(claim) {
		start := claim.CreationTimestamp.Time
		if t := claim.Status.ClaimStartTime; t != nil {
			start = t.Time
		}
		q.AddAfter(request, start.Add(minWait).Sub(c.clock.Now()))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, reported := c.reported[claim.UID]
	if !reported && (c.all || !ended && isShort(claim) && c.shorts.Allow(claim.Namespace, c.clock.Now())) {
		c.reported[claim.UID] = progress{}
		reported = true
	}
	if reported {
		q.Add(request)
	}
}

func (c *Controller) forget(claim types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reported, claim)
}

// Reconcile records what is new about a claim.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	// The cache drops a claim before it sends the event about that. A claim that is read
	// under the lock is forgotten after this, and not before.
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := &v1alpha1.SandboxClaim{}
	if err := c.client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxClaim %s: %w", req, err)
	}
	had, reported := c.reported[claim.UID]
	has := progress{claimed: claim.Status.ClaimedReplicas, cause: had.cause || claims.HasStartProblem(claim)}
	switch {
	case !unfinished(claim):
		delete(c.reported, claim.UID)
		if reported && claim.DeletionTimestamp == nil {
			c.recordEnd(claim)
		}
	case !reported, has.cause && !had.cause:
		c.reported[claim.UID] = has
		c.recorder.Event(claim, corev1.EventTypeWarning, eventNoAvailableSandboxes, waitingMessage(claim))
	case has.claimed > had.claimed:
		c.reported[claim.UID] = has
		c.recorder.Event(claim, corev1.EventTypeNormal, eventSandboxClaimed, claim.Status.Message)
	}
	return reconcile.Result{}, nil
}

// recordEnd records that a claim has come to its end.
func (c *Controller) recordEnd(claim *v1alpha1.SandboxClaim) {
	if recordBinding(c.recorder, claim) {
		return
	}
	if !isShort(claim) {
		c.recorder.Event(claim, corev1.EventTypeNormal, eventClaimCompleted, claim.Status.Message)
		return
	}
	c.recorder.Event(claim, corev1.EventTypeWarning, eventClaimIncomplete,
		fmt.Sprintf("Claimed %d/%d sandboxes. %s", claim.Status.ClaimedReplicas, replicas(claim), claim.Status.Message))
}

// waitingMessage returns what a claim waits for.
func waitingMessage(claim *v1alpha1.SandboxClaim) string {
	message, waits := claim.Status.Message, claims.NeedsPool(claim)
	asked := "SandboxSet " + claim.Spec.TemplateName
	if ref := claim.Spec.SandboxTemplateRef; ref != nil {
		asked = "SandboxTemplate " + ref.Name
	}
	if ref := claim.Spec.WarmPoolRef; ref != nil {
		asked = v1alpha1.KindWarmPool + " " + ref.Name
	}
	switch {
	case claim.Status.Waiting != nil && claim.Status.Waiting.Reason != "": // nothing can serve the claim
		return message
	case !waits && resizing(claim) && claim.Spec.InplaceUpdate != nil:
		return fmt.Sprintf("Sandboxes of %s are being updated in place. %s", asked, message)
	case !waits && resizing(claim):
		return fmt.Sprintf("Sandboxes of %s are being resized. %s", asked, message)
	case !waits && claim.Spec.WarmPool == v1alpha1.WarmPoolNone:
		return fmt.Sprintf("Sandboxes of %s are being started. %s", asked, message)
	case !waits && ptr.Deref(claim.Spec.CreateOnNoStock, true):
		return fmt.Sprintf("%s has too few available sandboxes, others are being started. %s", asked, message)
	}
	return fmt.Sprintf("%s has too few available sandboxes. %s", asked, message)
}

// resizing reports whether sandboxes of the claim are being changed in place.
func resizing(claim *v1alpha1.SandboxClaim) bool {
	update := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	return update != nil && update.Reason == v1alpha1.ReasonInplaceUpdating
}

// isShort reports whether a claim ended with less than it asked for.
func isShort(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted && claim.Status.ClaimedReplicas < replicas(claim)
}

func replicas(claim *v1alpha1.SandboxClaim) int32 { return int32(claims.Replicas(claim)) }

func unfinished(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted && claim.DeletionTimestamp == nil
}
