// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

// watches take what the cache shows into the states of sets and the waiting claims,
// and enqueue the sets that it concerns.
type watches struct {
	clock   clock.PassiveClock
	indexes *indexes
	states  *setStates
	claims  *waitingClaims
}

// sets enqueues a set when it changes: at once when a user changed it, and after eventDelay when
// only its status changed. That is mostly the controller's own write, and needed all the same: if
// the status was made from an old cache, it is corrected then. When a set is created or deleted,
// claims that name it may wait for other sets than before, so sets with a burst are enqueued too.
func (w *watches) sets() handler.EventHandler {
	createdOrDeleted := func(ctx context.Context, set client.Object, q queue.Interface) {
		enqueue(set, q)
		w.enqueueBurstSets(ctx, set.GetNamespace(), set.GetName(), q)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue.Interface) { createdOrDeleted(ctx, e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue.Interface) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				enqueue(e.ObjectNew, q)
				return
			}
			w.enqueueDelayed(client.ObjectKeyFromObject(e.ObjectNew), q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue.Interface) { createdOrDeleted(ctx, e.Object, q) },
	}
}

// sandboxes enqueues the set of a changed sandbox. Changes are gathered: the queue
// keeps the earliest time for a set, so a set is counted once in that time, however
// many of its sandboxes change in it.
func (w *watches) sandboxes() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue.Interface) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok {
				w.sandboxCreated(sandbox, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue.Interface) {
			before, okBefore := e.ObjectOld.(*v1alpha1.Sandbox)
			after, okAfter := e.ObjectNew.(*v1alpha1.Sandbox)
			if okBefore && okAfter {
				w.sandboxUpdated(before, after, q)
				w.enqueueForClaims(ctx, q, before, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue.Interface) {
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok {
				w.sandboxDeleted(sandbox, q)
				w.enqueueForClaims(ctx, q, sandbox)
			}
		},
	}
}

func (w *watches) sandboxCreated(sandbox *v1alpha1.Sandbox, q queue.Interface) {
	w.states.withState(setOf(sandbox), func(s *setState) {
		s.expectations.createObserved(sandbox.UID)
		w.recordStartDuration(s, sandbox)
	})
	w.enqueueSet(sandbox, q)
}

func (w *watches) sandboxUpdated(before, after *v1alpha1.Sandbox, q queue.Interface) {
	if before.UID != after.UID {
		// Deleted and created again between two events of the cache.
		w.sandboxDeleted(before, q)
		w.sandboxCreated(after, q)
		return
	}
	now := w.clock.Now()
	pooled := v1alpha1.IsInPool(before)
	claimed := pooled && !v1alpha1.IsInPool(after)
	w.states.withState(setOf(before), func(s *setState) {
		if after.DeletionTimestamp != nil {
			s.expectations.deleteObserved(after.UID)
		}
		w.recordStartDuration(s, after)
		if claimed {
			s.recordClaim(now)
			if isRunning(after) {
				s.backoff.recordSuccess(revisionOf(before))
			}
		}
	})
	if claimed {
		w.claims.recordClaimed(types.UID(after.Annotations[v1alpha1.AnnotationOwner]), after.ResourceVersion, now)
	}
	if claimed || before.Status.Phase == v1alpha1.SandboxRecycling {
		w.enqueueSet(before, q)
	}
	w.enqueueSet(after, q)
}

func (w *watches) sandboxDeleted(sandbox *v1alpha1.Sandbox, q queue.Interface) {
	w.states.withState(setOf(sandbox), func(s *setState) {
		s.expectations.deleteObserved(sandbox.UID)
		delete(s.createTimes, sandbox.UID)
	})
	w.enqueueSet(sandbox, q)
}

func (w *watches) recordStartDuration(s *setState, sandbox *v1alpha1.Sandbox) {
	now := w.clock.Now()
	if duration, ok := s.createTimes.recordState(sandbox.UID, stateInPool(sandbox, now), now); ok {
		startDuration.Observe(duration.Seconds())
	}
}

// isRunning reports whether a sandbox that was claimed just now runs. The phase Running is not enough, because a process
// that ends soon runs for a moment, too.
func isRunning(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Status.Phase == v1alpha1.SandboxRunning &&
		meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
}

// waitingClaims enqueues the sets that may grow for a claim when it begins or ceases
// to wait, or waits for fewer. Sets without a burst have no work by that: what they
// are to hold does not depend on claims.
func (w *watches) waitingClaims() handler.EventHandler {
	changed := func(ctx context.Context, object client.Object, q queue.Interface) {
		if claim, ok := object.(*v1alpha1.SandboxClaim); ok && w.claims.update(claim) {
			w.enqueueBurstSets(ctx, claim.Namespace, askedFor(claim).Name, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue.Interface) { changed(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue.Interface) { changed(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue.Interface) {
			if claim, ok := e.Object.(*v1alpha1.SandboxClaim); ok && w.claims.remove(client.ObjectKeyFromObject(claim)) {
				w.enqueueBurstSets(ctx, claim.Namespace, askedFor(claim).Name, q)
			}
		},
	}
}

// enqueueForClaims enqueues the sets that may grow for the claims that hold sandboxes
// which are starting: when one of them fails, its claim waits for one more, and does
// not change by that.
func (w *watches) enqueueForClaims(ctx context.Context, q queue.Interface, sandboxes ...*v1alpha1.Sandbox) {
	for _, sandbox := range sandboxes {
		owner := metav1.GetControllerOfNoCopy(sandbox)
		if owner == nil || sandbox.Annotations[v1alpha1.AnnotationStarting] == "" {
			continue
		}
		if claim := w.claims.claim(owner.UID); claim != nil {
			w.enqueueBurstSets(ctx, claim.Namespace, askedFor(claim).Name, q)
		}
	}
}

// holders enqueues a set when
//
//   - a SandboxTemplate that holds a revision of the set is deleted: it may be needed;
//   - its content changes: it may not hold the revision any more;
//   - its owner is removed;
//   - another template that had the name of a revision is deleted: the name is free.
func (w *watches) holders() handler.EventHandler {
	templateLost := func(ctx context.Context, template client.Object, q queue.Interface) {
		for _, set := range w.setsOfTemplate(ctx, template) {
			w.states.withState(set, func(s *setState) { s.revision.missing = revisionMissing{} })
			w.enqueueDelayed(set, q)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue.Interface) {
			before, after := metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew)
			lostOwner := before != nil && (after == nil || after.UID != before.UID)
			if lostOwner || e.ObjectOld.GetLabels()[v1alpha1.LabelTemplateHash] != "" && mayHoldOther(e.ObjectOld, e.ObjectNew) {
				templateLost(ctx, e.ObjectOld, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue.Interface) { templateLost(ctx, e.Object, q) },
	}
}

// mayHoldOther reports whether a change of a SandboxTemplate may be one of the revision that it holds:
// of its spec, of the labels by which that is checked, or that it is being deleted.
func mayHoldOther(before, after client.Object) bool {
	if before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) {
		return true
	}
	for _, label := range []string{v1alpha1.LabelTemplateHash, v1alpha1.LabelSandboxPool, v1alpha1.LabelSandboxTemplate} {
		if before.GetLabels()[label] != after.GetLabels()[label] {
			return true
		}
	}
	return false
}

// enqueueBurstSets enqueues the sets with a burst that are of a name or refer to the
// template of that name: claims that ask for it may be theirs.
func (w *watches) enqueueBurstSets(ctx context.Context, namespace, name string, q queue.Interface) {
	sets, err := w.indexes.burstSets.ByName(namespace, name)
	if err != nil {
		log.FromContext(ctx).Error(err, "Failed to find the sets that may grow", "namespace", namespace, "name", name)
		return
	}
	for _, set := range sets {
		w.enqueueDelayed(client.ObjectKeyFromObject(set), q)
	}
}

// enqueueSet enqueues the set that owns a sandbox, or that gets it back when it is recycled, if any.
func (w *watches) enqueueSet(sandbox *v1alpha1.Sandbox, q queue.Interface) {
	set := setOf(sandbox)
	if set.Name != "" && (v1alpha1.IsInPool(sandbox) || sandbox.Status.Phase == v1alpha1.SandboxRecycling) {
		w.enqueueDelayed(set, q)
	}
}

// enqueueDelayed enqueues a set after the time in which its events are gathered.
func (w *watches) enqueueDelayed(set types.NamespacedName, q queue.Interface) {
	q.AddAfter(reconcile.Request{NamespacedName: set}, w.states.eventDelay(set))
}

// enqueue enqueues a set at once.
func enqueue(set client.Object, q queue.Interface) {
	q.Add(queue.RequestFor(set))
}

// setOf returns the set that a sandbox was created for: its owner, or the set in its label, if a claim
// took the sandbox before the cache showed its owner.
func setOf(sandbox *v1alpha1.Sandbox) types.NamespacedName {
	name := sandbox.Labels[v1alpha1.LabelSandboxPool]
	if owner := v1alpha1.PoolOf(sandbox); owner != nil {
		name = owner.Name
	}
	return types.NamespacedName{Namespace: sandbox.Namespace, Name: name}
}

// setsOfTemplate are the sets that a template holds a revision of, or may keep from
// holding one: by owner and label, and by name for those that never were a set's. The
// name of a revision begins with that of the set, or of the template that it refers to.
func (w *watches) setsOfTemplate(ctx context.Context, template client.Object) []types.NamespacedName {
	names := sets.New[string]()
	if owner := metav1.GetControllerOfNoCopy(template); owner != nil && v1alpha1.OwnerKind(owner) == "SandboxSet" {
		names.Insert(owner.Name)
	}
	if set := template.GetLabels()[v1alpha1.LabelSandboxPool]; set != "" {
		names.Insert(set)
	}
	if dash := strings.LastIndexByte(template.GetName(), '-'); dash > 0 && names.Len() == 0 {
		prefix := template.GetName()[:dash]
		names.Insert(prefix)
		for _, kind := range []string{v1alpha1.TemplateKindSandboxTemplate, v1alpha1.TemplateKindPodTemplate} {
			users, err := w.indexes.setUsers.UsersOf(kind, template.GetNamespace(), prefix)
			if err != nil {
				log.FromContext(ctx).Error(err, "Failed to find the sets of a template", "namespace", template.GetNamespace(), "name", prefix)
			}
			for _, set := range users {
				names.Insert(set.GetName())
			}
		}
	}
	keys := make([]types.NamespacedName, 0, names.Len())
	for name := range names {
		keys = append(keys, types.NamespacedName{Namespace: template.GetNamespace(), Name: name})
	}
	return keys
}
