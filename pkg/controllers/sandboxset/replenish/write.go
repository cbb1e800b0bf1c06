// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/writepace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// writer carries out what reconciles have decided.
type writer struct {
	client client.Client
	clock  clock.PassiveClock
	states *setStates
	report *reporter
	// workers is how many sets are reconciled at the same time, and activeReconciles how many
	// are now.
	workers          int
	activeReconciles atomic.Int32
	// maxWrites is how many sandboxes of one set are created or deleted at the same
	// time, while claims pause.
	maxWrites int
}

// written is what a reconcile has done to a pool, for its count and its status.
type written struct {
	// created are new, and deleted are gone or about to be, by this controller or another writer.
	created, deleted sets.Set[types.UID]
	// createError is the server's answer to the create of a sandbox, see createErrorMessage.
	createError string
	// isFinished is false where time was up before everything was handled.
	isFinished bool
}

// scale carries out a plan.
func (w *writer) scale(ctx context.Context, o *observation, p plan) (*written, error) {
	done := &written{created: sets.Set[types.UID]{}, deleted: sets.Set[types.UID]{}}
	if p.create == 0 && len(p.remove) == 0 {
		done.isFinished = true
		return done, nil
	}
	parallelism := func() int { return w.parallelism(o) }
	removals, removeErr := w.remove(ctx, o, p, parallelism, done)
	// What cannot be removed does not count, or is too many: it is no reason to create fewer.
	creates, createErr := w.create(ctx, o, p.create, parallelism, done)
	log.FromContext(ctx).V(2).Info("Scaled the pool",
		"toCreate", p.create, "created", len(done.created), "toRemove", len(p.remove), "removed", len(done.deleted))
	done.isFinished = creates == p.create && removals == len(p.remove)
	return done, errors.Join(removeErr, createErr)
}

// parallelism is how many writes may be under way now; 0 stops. A reconcile writes for up to
// maxCountInterval. If all workers are busy, it stops after eventDelay, so that other sets get a
// worker.
func (w *writer) parallelism(o *observation) int {
	key, now := client.ObjectKeyFromObject(o.set), w.clock.Now()
	timeLimit := maxCountInterval
	if int(w.activeReconciles.Load()) >= w.workers {
		timeLimit = w.states.eventDelay(key)
	}
	if now.Sub(o.now) > timeLimit {
		return 0
	}
	parallelism := w.maxWrites
	w.states.withState(key, func(s *setState) { parallelism = s.claimRate.parallelism(o.desired(), w.maxWrites, now) })
	if specChanged(o.set) {
		return max(parallelism, 1)
	}
	return parallelism
}

// create creates n sandboxes. It returns how many of them need no further create.
func (w *writer) create(ctx context.Context, o *observation, n int, parallelism func() int, done *written) (int, error) {
	if n == 0 {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(o.set)
	model, err := podtemplate.NewSandbox(o.target.setAtRevision, o.target.revision, o.target.resolved)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	created, err := slowStart(ctx, n, parallelism, func(int) error {
		sandbox := model.DeepCopy()
		sandbox.Name = podtemplate.NewName(model.GenerateName)
		w.states.withState(key, func(s *setState) { s.expectations.expectCreate() })
		began := w.clock.Now()
		if err := w.client.Create(ctx, sandbox); err != nil {
			w.states.withState(key, func(s *setState) { s.expectations.createFailed() })
			if message := createErrorMessage(err, sandbox.Name); message != "" {
				mu.Lock()
				defer mu.Unlock()
				done.createError = message
			}
			return err
		}
		w.states.withState(key, func(s *setState) {
			s.createTimes[sandbox.UID] = began
			s.expectations.created(sandbox.UID, o.target.revision, w.clock.Now())
		})
		mu.Lock()
		defer mu.Unlock()
		done.created.Insert(sandbox.UID)
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// Nothing can be created there any more, and the set will go as well.
		done.createError = ""
		return n, nil
	}
	w.report.created(o.set, created, err)
	if err != nil {
		err = fmt.Errorf("creating a sandbox for SandboxSet %s: %w", key, err)
	}
	return created, err
}

// remove deletes sandboxes, each only at the resourceVersion at which it was counted. If a claim has
// taken one meanwhile, its resourceVersion is newer, and the server refuses the delete, as it should.
//
// Claims may take sandboxes meanwhile. If a roll-out, or a replacement because of nodes, leaves no
// more available sandboxes than it must, the rest is left to the next reconcile and counts as handled.
// It returns how many are handled.
func (w *writer) remove(ctx context.Context, o *observation, p plan, parallelism func() int, done *written) (int, error) {
	key := client.ObjectKeyFromObject(o.set)
	mayRemove, err := w.removalGuard(o, p)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	deleted := map[removalReason]int{}
	remove := func(sandbox *v1alpha1.Sandbox) error {
		if stateInPool(sandbox, o.now) == stateAvailable && !mayRemove() {
			return nil
		}
		w.states.withState(key, func(s *setState) { s.expectations.expectDelete(sandbox.UID, w.clock.Now()) })
		err := w.client.Delete(ctx, sandbox, preconditions(sandbox))
		if err != nil {
			// Where it is not found, the event may have come before: none is owed.
			w.states.withState(key, func(s *setState) { s.expectations.deleteObserved(sandbox.UID) })
		}
		switch {
		case apierrors.IsConflict(err):
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("deleting Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		done.deleted.Insert(sandbox.UID)
		if err == nil {
			deleted[p.reasonFor(sandbox, o.now)]++
			w.report.foreignToken(o.set, sandbox)
		}
		return nil
	}
	// Those that have ended come first. One of them that cannot be deleted is no reason to keep the others.
	ended := 0
	for ended < len(p.remove) && stateInPool(p.remove[ended], o.now) == stateEnded {
		ended++
	}
	handled := 0
	var errs []error
	for _, sandboxes := range [][]*v1alpha1.Sandbox{p.remove[:ended], p.remove[ended:]} {
		n, err := slowStart(ctx, len(sandboxes), parallelism, func(i int) error { return remove(sandboxes[i]) })
		handled, errs = handled+n, append(errs, err)
	}
	err = errors.Join(errs...)
	w.report.removed(o.set, deleted, err)
	return handled, err
}

// removalGuard returns a function that is called before each deletion of an available sandbox. It
// reports whether one more may be removed, given what claims have taken since the pool was
// counted.
func (w *writer) removalGuard(o *observation, p plan) (func() bool, error) {
	if !p.isRollout && len(p.onUnavailableNodes) == 0 {
		return func() bool { return true }, nil
	}
	minAvailableOf := o.minAvailable
	if !p.isRollout {
		minAvailableOf = o.minAvailableForReplacement
	}
	minAvailable, err := minAvailableOf()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	removed := 0
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		available := 0
		w.states.withState(client.ObjectKeyFromObject(o.set), func(s *setState) { available = s.claimRate.availableLeft })
		if available-removed <= minAvailable {
			return false
		}
		removed++
		return true
	}, nil
}

// removeWithSet deletes the pool of a set that is deleted in the foreground, in the
// foreground as well, and only what was not claimed since: that is none of the set's.
func (w *writer) removeWithSet(ctx context.Context, sandboxes []*v1alpha1.Sandbox) []error {
	return parallel(len(sandboxes), w.maxWrites, func(i int) error {
		sandbox := sandboxes[i]
		if sandbox.DeletionTimestamp != nil {
			return nil
		}
		err := w.client.Delete(ctx, sandbox, client.PropagationPolicy(metav1.DeletePropagationForeground), preconditions(sandbox))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting Sandbox %s/%s with its set: %w", sandbox.Namespace, sandbox.Name, err)
		}
		return nil
	})
}

// preconditions makes the server refuse to delete a sandbox that has changed.
func preconditions(sandbox *v1alpha1.Sandbox) client.Preconditions {
	return client.Preconditions{UID: new(sandbox.UID), ResourceVersion: new(sandbox.ResourceVersion)}
}

// removeFinalizer lets a set be deleted whose pool is gone. If the set has changed
// meanwhile, its event brings the next reconcile.
func (w *writer) removeFinalizer(ctx context.Context, set *v1alpha1.SandboxSet) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": set.ResourceVersion,
		// Empty, not nil, where there is no other: that would leave them as they are.
		"finalizers": slices.DeleteFunc(slices.Clone(set.Finalizers), func(f string) bool { return f == v1alpha1.FinalizerPool }),
	}})
	if err != nil {
		return err
	}
	target := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	err = w.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing the finalizer of SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}

// writeStatus writes the status, if it changed. It returns true where the set
// that it was made from is no longer the current one: then the status would be
// about an old spec, and the new one is on its way into the cache.
func (w *writer) writeStatus(ctx context.Context, o *observation, status v1alpha1.SandboxSetStatus) (isConflict bool, err error) {
	if equality.Semantic.DeepEqual(o.set.Status, status) {
		return false, nil
	}
	set := o.set.DeepCopy() // the cache's own object stays as it is
	set.Status = status
	patch := client.MergeFromWithOptions(o.set, client.MergeFromWithOptimisticLock{})
	err = w.client.Status().Patch(ctx, set, patch)
	switch {
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the status of SandboxSet %s/%s: %w", o.set.Namespace, o.set.Name, err)
	}
	due := w.clock.Now().Add(writepace.MinInterval(set))
	w.states.withState(client.ObjectKeyFromObject(set), func(s *setState) { s.statusDue = due })
	w.report.statusWritten(o.set, &status)
	return false, nil
}
