// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// workers is how many sets are reconciled at the same time, and busy how many are
	// now.
	workers int
	busy    atomic.Int32
	// concurrency is how many sandboxes of one set are created or deleted at the same
	// time, while no claims run.
	concurrency int
}

// scale carries out a plan and enters what it did into o, so that the status can
// include it. It returns false where time was up before everything was done.
func (w *writer) scale(ctx context.Context, o *observation, p plan) (bool, error) {
	if p.create == 0 && len(p.remove) == 0 {
		return true, nil
	}
	width := func() int { return w.width(o) }
	removed, err := w.remove(ctx, o, p, width)
	if err != nil {
		return false, err
	}
	created, err := w.create(ctx, o, p.create, width)
	log.FromContext(ctx).V(2).Info("Scaled the pool",
		"toCreate", p.create, "created", created, "toRemove", len(p.remove), "removed", removed)
	if err != nil {
		return false, err
	}
	return created == p.create && removed == len(p.remove), nil
}

// width is how many writes may go on at once now; 0 stops. A set may be worked on for
// a turn, but where all workers are at it, others may wait: then it gets only as long
// as makes good for counting its pool.
func (w *writer) width(o *observation) int {
	key, now := client.ObjectKeyFromObject(o.set), w.clock.Now()
	turn := maxTurn
	if int(w.busy.Load()) >= w.workers {
		turn = w.states.eventDelay(key)
	}
	if now.Sub(o.now) > turn {
		return 0
	}
	width := w.concurrency
	w.states.update(key, func(s *setState) { width = s.claimRate.width(o.desired(), w.concurrency, now) })
	if specChanged(o.set) {
		return max(width, 1)
	}
	return width
}

// create creates n sandboxes.
func (w *writer) create(ctx context.Context, o *observation, n int, width func() int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(o.set)
	model, err := podtemplate.NewSandbox(o.setAtRevision, o.revision, o.resolved)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	created, err := slowStart(ctx, n, width, func(int) error {
		sandbox := model.DeepCopy()
		sandbox.Name = podtemplate.NewName(model.GenerateName)
		w.states.update(key, func(s *setState) { s.expectations.expectCreate() })
		began := w.clock.Now()
		if err := w.client.Create(ctx, sandbox); err != nil {
			w.states.update(key, func(s *setState) { s.expectations.createFailed() })
			if message := createErrorMessage(err, sandbox.Name); message != "" {
				mu.Lock()
				defer mu.Unlock()
				o.createError = message
			}
			return err
		}
		w.states.update(key, func(s *setState) {
			s.createTimes[sandbox.UID] = began
			s.expectations.created(sandbox.UID, o.revision, w.clock.Now())
		})
		mu.Lock()
		defer mu.Unlock()
		o.creates[sandbox.UID] = o.revision
		return nil
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// Nothing can be created there any more, and the set will go as well.
		o.createError = ""
		return n, nil
	}
	w.report.created(o.set, created, err)
	if err != nil {
		return created, fmt.Errorf("creating a sandbox for SandboxSet %s: %w", key, err)
	}
	return created, nil
}

// remove deletes sandboxes, each only in the very state in which it was counted. A
// claim that has taken one meanwhile has given it a newer resourceVersion; then
// the server refuses, and that is well.
//
// Claims may take sandboxes meanwhile. If a roll-out, or a replacement because of nodes, reaches
// the floor, the rest is left to the next reconcile and counts as removed.
func (w *writer) remove(ctx context.Context, o *observation, p plan, width func() int) (int, error) {
	key := client.ObjectKeyFromObject(o.set)
	spare, err := w.spare(o, p)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	deleted := map[removalReason]int{}
	removed, err := slowStart(ctx, len(p.remove), width, func(i int) error {
		sandbox := p.remove[i]
		if stateInPool(sandbox, o.now) == stateAvailable && !spare() {
			return nil
		}
		w.states.update(key, func(s *setState) { s.expectations.expectDelete(sandbox.UID, w.clock.Now()) })
		err := w.client.Delete(ctx, sandbox, asSeen(sandbox))
		if err != nil {
			// Where it is not found, the event may have come before: none is owed.
			w.states.update(key, func(s *setState) { s.expectations.deleteObserved(sandbox.UID) })
		}
		switch {
		case apierrors.IsConflict(err):
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("deleting Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		o.deletes.Insert(sandbox.UID)
		if err == nil {
			deleted[p.reasonFor(sandbox, o.now)]++
			w.report.foreignToken(o.set, sandbox)
		}
		return nil
	})
	w.report.removed(o.set, deleted, err)
	return removed, err
}

// spare returns what reports before each deletion of an available sandbox whether the
// pool can spare one more, given what claims have taken since it was counted.
func (w *writer) spare(o *observation, p plan) (func() bool, error) {
	if !p.rolling && len(p.lost) == 0 {
		return func() bool { return true }, nil
	}
	floorOf := o.floor
	if !p.rolling {
		floorOf = o.budgetFloor
	}
	floor, err := floorOf()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	spent := 0
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		stock := 0
		w.states.update(client.ObjectKeyFromObject(o.set), func(s *setState) { stock = s.claimRate.stock })
		if stock-spent <= floor {
			return false
		}
		spent++
		return true
	}, nil
}

// removeWithSet deletes the pool of a set that is deleted in the foreground, in the
// foreground as well, and only what was not claimed since: that is none of the set's.
func (w *writer) removeWithSet(ctx context.Context, sandboxes []*v1alpha1.Sandbox) []error {
	return parallel(len(sandboxes), w.concurrency, func(i int) error {
		sandbox := sandboxes[i]
		if sandbox.DeletionTimestamp != nil {
			return nil
		}
		err := w.client.Delete(ctx, sandbox, client.PropagationPolicy(metav1.DeletePropagationForeground), asSeen(sandbox))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting Sandbox %s/%s with its set: %w", sandbox.Namespace, sandbox.Name, err)
		}
		return nil
	})
}

// asSeen makes the server refuse to delete a sandbox that has changed.
func asSeen(sandbox *v1alpha1.Sandbox) client.Preconditions {
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
	w.states.update(client.ObjectKeyFromObject(set), func(s *setState) { s.statusDue = due })
	w.report.statusWritten(o.set, &status)
	return false, nil
}

// maxBatch bounds how long a batch can be, and so how late a slow start notices
// that its width has changed.
const maxBatch = 64

// slowStart calls do(0) ... do(n-1), in batches of 1, 2, 4, ... calls, and stops
// after the first batch with a failure: what refuses one sandbox (a quota, a
// webhook) mostly refuses all, and thousands of refused calls are of no use. width
// is asked before each batch how many calls may run at once; 0 stops.
//
// It returns how many calls succeeded, and the first failure.
func slowStart(ctx context.Context, n int, width func() int, do func(int) error) (int, error) {
	done := 0
	for batch := 1; done < n; batch = min(2*batch, maxBatch) {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		workers := width()
		if workers <= 0 {
			return done, nil
		}
		todo := min(batch, n-done)
		first := done
		errs := parallel(todo, workers, func(i int) error { return do(first + i) })
		done += todo - len(errs)
		if len(errs) > 0 {
			return done, errs[0]
		}
	}
	return done, nil
}

// parallel calls do(0) ... do(n-1), at most workers at a time, waits for all and
// returns the failures.
func parallel(n, workers int, do func(int) error) []error {
	if n <= 0 {
		return nil
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		errs []error
	)
	take := func(err error) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
		i := next
		next++
		return i, i < n
	}
	for range min(max(workers, 1), n) {
		wg.Go(func() {
			for i, ok := take(nil); ok; {
				i, ok = take(do(i))
			}
		})
	}
	wg.Wait()
	return errs
}
