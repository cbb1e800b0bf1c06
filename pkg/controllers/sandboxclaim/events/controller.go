// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events records events on SandboxClaims. An event is a write to the
// cluster's own etcd, where a claim is none, so by default only claims that had
// to wait get any: a burst that the pools can serve leaves no trace there. It
// changes nothing else.
package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Reasons of events on SandboxClaims. They are OpenKruise's.
const (
	// NoAvailableSandboxes is a warning that a claim waits.
	NoAvailableSandboxes = "NoAvailableSandboxes"
	// SandboxClaimed tells that a claim that waits got some of its sandboxes.
	SandboxClaimed = "SandboxClaimed"
	// ClaimCompleted tells that nothing more will be claimed.
	ClaimCompleted = "ClaimCompleted"
)

// grace is how long a claim must have waited before that is worth an event. Its
// start is known to the second, so it is up to one less.
const grace = 2 * time.Second

// Options say how much is recorded.
type Options struct {
	// All records the completion of every claim, a write for each. Otherwise only
	// claims that had to wait get events.
	All bool
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Controller records events on claims.
type Controller struct {
	client   client.Client
	clock    clock.PassiveClock
	options  Options
	recorder recorder.EventRecorder

	mu sync.Mutex
	// told are the claims that an event has been recorded on, or is due on, and
	// whose completion is therefore one, with how many sandboxes they had by then.
	told map[types.UID]int32
}

var _ reconcile.Reconciler = (*Controller)(nil)

// New returns a Controller that reads through c.
func New(c client.Client, clk clock.PassiveClock, o Options) *Controller {
	return &Controller{client: c, clock: clk, options: o, told: map[types.UID]int32{}}
}

// Name is the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "sandboxclaim-events" }

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, mgr ctrl.Manager) error {
	c.recorder = mgr.GetEventRecorder(c.Name())
	return ctrl.NewControllerManagedBy(mgr).
		Named(c.Name()).
		// One worker: recording hands on to the recorder's own queue.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Watches(&v1alpha1.SandboxClaim{}, c.events()).
		Complete(c)
}

// events queues a claim when it has waited for a while and when it is completed
// after that. A claim that was bound by its create is never queued, unless all
// are to be told of; then those are left out that were completed before this
// program started.
func (c *Controller) events() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if claim, ok := e.Object.(*v1alpha1.SandboxClaim); ok && (unfinished(claim) || !e.IsInInitialList) {
				c.look(claim, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, okBefore := e.ObjectOld.(*v1alpha1.SandboxClaim)
			after, okAfter := e.ObjectNew.(*v1alpha1.SandboxClaim)
			if okBefore && okAfter && before.UID != after.UID {
				c.forget(before.UID) // deleted and made again between two looks of the cache
			}
			if okBefore && okAfter && (before.UID != after.UID || before.Status.Phase != after.Status.Phase ||
				before.Status.ClaimedReplicas != after.Status.ClaimedReplicas) {
				c.look(after, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			c.forget(e.Object.GetUID())
		},
	}
}

// look queues a claim if there may be something to tell of it.
func (c *Controller) look(claim *v1alpha1.SandboxClaim, q queue) {
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}
	if unfinished(claim) {
		start := claim.CreationTimestamp.Time
		if t := claim.Status.ClaimStartTime; t != nil {
			start = t.Time
		}
		q.AddAfter(request, start.Add(grace).Sub(c.clock.Now()))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, told := c.told[claim.UID]
	if c.options.All && !told {
		c.told[claim.UID] = 0
		told = true
	}
	if told {
		q.Add(request)
	}
}

func (c *Controller) forget(claim types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, claim)
}

// Reconcile tells what is new about a claim.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	// The cache lets go of a claim before it tells of that. Read under the lock, a
	// claim that is there is forgotten after this, and not before.
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := &v1alpha1.SandboxClaim{}
	if err := c.client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting SandboxClaim %s: %w", req, err)
	}
	had, told := c.told[claim.UID]
	has := claim.Status.ClaimedReplicas
	switch {
	case !unfinished(claim):
		delete(c.told, claim.UID)
		if told && claim.DeletionTimestamp == nil {
			c.record(claim, corev1.EventTypeNormal, ClaimCompleted, claim.Status.Message)
		}
	case !told:
		c.told[claim.UID] = has
		c.record(claim, corev1.EventTypeWarning, NoAvailableSandboxes, waiting(claim))
	case has > had:
		c.told[claim.UID] = has
		c.record(claim, corev1.EventTypeNormal, SandboxClaimed, claim.Status.Message)
	}
	return reconcile.Result{}, nil
}

// record names the claim without its resourceVersion, so that the recorder knows
// it again and counts up what it has told before.
func (c *Controller) record(claim *v1alpha1.SandboxClaim, kind, reason, note string) {
	c.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       "SandboxClaim",
		Namespace:  claim.Namespace,
		Name:       claim.Name,
		UID:        claim.UID,
	}, nil, kind, reason, "Claim", "%s", note)
}

// waiting says what a claim waits for.
func waiting(claim *v1alpha1.SandboxClaim) string {
	message := claim.Status.Message
	progress := v1alpha1.ClaimingMessage(claim.Status.ClaimedReplicas, ptr.Deref(claim.Spec.Replicas, v1alpha1.DefaultClaimReplicas))
	asked := "SandboxSet " + claim.Spec.TemplateName
	if ref := claim.Spec.SandboxTemplateRef; ref != nil {
		asked = "SandboxTemplate " + ref.Name
	}
	switch {
	case !strings.HasPrefix(message, progress): // there is none, or it is not what the claim takes it for
		return message
	case message == progress && resizing(claim):
		return fmt.Sprintf("Sandboxes of %s are being resized. %s", asked, message)
	case message == progress && claim.Spec.WarmPool == v1alpha1.WarmPoolNone:
		return fmt.Sprintf("Sandboxes of %s are being started. %s", asked, message)
	case message == progress && ptr.Deref(claim.Spec.CreateOnNoStock, true):
		return fmt.Sprintf("%s has too few available sandboxes, others are being started. %s", asked, message)
	}
	return fmt.Sprintf("%s has too few available sandboxes. %s", asked, message)
}

// resizing says whether sandboxes of the claim are being resized.
func resizing(claim *v1alpha1.SandboxClaim) bool {
	update := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	return update != nil && update.Reason == v1alpha1.ReasonInplaceUpdating
}

func unfinished(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted && claim.DeletionTimestamp == nil
}
