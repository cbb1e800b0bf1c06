// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// metadataSyncsAtOnce is how many claims a server brings changed metadata of to sandboxes at the same
// time, so that the others of the workers go on binding. A namespace has as many as it leaves free.
const metadataSyncsAtOnce = 16

// metadataSyncer has the claims that are Completed and have been given other metadata since, on
// every server, and what this server knows of those that it works on. A claim
// that is not changed is not among them, and one leaves when its sandboxes have what it
// says and nothing has been written for a while. It is level-triggered: what is left to do is
// in the claim's observedGeneration, and which sandboxes have it is in these.
type metadataSyncer struct {
	writer     *metadataWriter
	reconciler *reconciler.Reconciler

	mu    sync.Mutex
	byUID map[types.UID]*edited
}

// edited is one such claim.
type edited struct {
	namespace string

	mu sync.Mutex
	// claim is the newest that is known, and deleted reports whether it is gone.
	claim   *v1alpha1.SandboxClaim
	deleted bool

	// The rest is for the goroutine that is at the claim. held are its sandboxes, ordered by
	// name, as far as read is true.
	held    []*v1alpha1.Sandbox
	read    bool
	rollout *metadataRollout
}

func newMetadataSyncer(r *reconciler.Reconciler, p *metadataWriter) *metadataSyncer {
	return &metadataSyncer{writer: p, reconciler: r, byUID: map[types.UID]*edited{}}
}

// observeClaim takes in the state of a claim.
func (s *metadataSyncer) observeClaim(claim *v1alpha1.SandboxClaim) {
	s.mu.Lock()
	defer s.mu.Unlock() // so that it is not forgotten meanwhile
	known := s.byUID[claim.UID]
	if known == nil && claims.MetadataBehind(claim) {
		known = &edited{namespace: claim.Namespace, rollout: newMetadataRollout()}
		s.byUID[claim.UID] = known
	}
	if known != nil && known.setClaim(claim) {
		s.reconciler.Queue.Add(claim.UID)
	}
}

// observeClaimDeleted takes in that a claim is gone.
func (s *metadataSyncer) observeClaimDeleted(uid types.UID) {
	known := s.of(uid)
	if known == nil {
		return
	}
	known.mu.Lock()
	known.deleted = true
	known.mu.Unlock()
	s.reconciler.Queue.Add(uid)
}

// listed takes in which claims there are as of a resourceVersion.
func (s *metadataSyncer) listed(all map[types.UID]bool, resourceVersion uint64) {
	for uid, known := range s.all() {
		if claim := known.latest(); claim != nil && !all[uid] && version(claim) <= resourceVersion {
			s.observeClaimDeleted(uid)
		}
	}
}

// wake makes every claim due.
func (s *metadataSyncer) wake() {
	for uid := range s.all() {
		s.reconciler.Queue.Add(uid)
	}
}

func (s *metadataSyncer) all() map[types.UID]*edited {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byUID)
}

// setClaim takes in the state of the claim, and reports whether it is newer than the known one.
func (e *edited) setClaim(claim *v1alpha1.SandboxClaim) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claim != nil && version(claim) <= version(e.claim) {
		return false
	}
	e.claim = claim
	return true
}

// latest is the claim as it stands; nil if it is gone.
func (e *edited) latest() *v1alpha1.SandboxClaim {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deleted {
		return nil
	}
	return e.claim
}

func (s *metadataSyncer) NamespaceOf(uid types.UID) string {
	if known := s.of(uid); known != nil {
		return known.namespace
	}
	return ""
}

// of returns what is known of a claim; nil if it is not among these.
func (s *metadataSyncer) of(uid types.UID) *edited {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUID[uid]
}

func (s *metadataSyncer) Reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	known := s.of(uid)
	if known == nil {
		return 0, nil
	}
	claim := known.latest()
	if claim == nil {
		s.forget(uid)
		return 0, nil
	}
	again, err = s.sync(ctx, uid, known, claim)
	if err != nil && throttledFor(err) == 0 {
		known.held, known.read = nil, false // whatever was written, the store knows
	}
	return again, err
}

// sync does the next step for a claim, and returns after what time to do another; 0 means when
// there is an event.
func (s *metadataSyncer) sync(ctx context.Context, uid types.UID, known *edited, claim *v1alpha1.SandboxClaim) (time.Duration, error) {
	now := s.writer.committer.clock.Now()
	switch {
	case !s.reconciler.IsMine(uid):
		known.held, known.read = nil, false
		if !claims.MetadataBehind(claim) {
			s.forget(uid)
		}
		return 0, nil
	case claims.MetadataBehind(claim):
		if !known.rollout.isDone(claim) {
			known.rollout.begin(claim, now)
		}
	case known.rollout.isQuiet(now):
		s.forget(uid)
		return 0, nil
	case known.rollout.spacing.isOver(now):
		// Nothing is to be brought, also where a change was not: others have brought it, or
		// the claim is opened again or deleted. Only the backoff is remembered.
		return known.rollout.spacing.until.Add(quietTime).Sub(now), nil
	}
	if !known.rollout.spacing.isOver(now) {
		return known.rollout.spacing.until.Sub(now), nil
	}
	if !known.rollout.isDone(claim) {
		if err := s.read(ctx, known, claim); err != nil {
			return 0, err
		}
		wrote, done, err := s.writer.step(ctx, known.rollout, claim, known.held)
		if err != nil {
			return 0, err
		}
		known.recordWrite(wrote)
		if !done {
			return reconciler.Soon, nil
		}
	}
	if err := s.recordSynced(ctx, known, claim); err != nil {
		return 0, err
	}
	known.held, known.read = nil, false
	return reconciler.Soon, nil
}

// read reads the sandboxes of the claim, if they are not known.
func (s *metadataSyncer) read(ctx context.Context, known *edited, claim *v1alpha1.SandboxClaim) error {
	if known.read {
		return nil
	}
	held, err := s.writer.committer.store.SandboxesOf(ctx, claim)
	if err != nil {
		return err
	}
	known.held = slices.Clone(held)
	slices.SortFunc(known.held, byName)
	known.read = true
	return nil
}

func byName(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) }

// recordWrite takes in what a step wrote.
func (e *edited) recordWrite(sandboxes []*v1alpha1.Sandbox) {
	for _, sb := range sandboxes {
		if at, found := slices.BinarySearchFunc(e.held, sb, byName); found {
			e.held[at] = sb
		}
	}
}

// recordSynced notes in the claim that its sandboxes have what it says.
func (s *metadataSyncer) recordSynced(ctx context.Context, known *edited, claim *v1alpha1.SandboxClaim) error {
	next := plan.MetadataSynced(claim, &known.rollout.report, known.held, s.writer.committer.clock.Now())
	if err := s.writer.committer.updateClaim(ctx, next); err != nil {
		return err
	}
	known.setClaim(next)
	return nil
}

// forget ends the work on a claim, unless it was changed again.
func (s *metadataSyncer) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byUID[uid]; known != nil {
		if claim := known.latest(); claim == nil || !claims.MetadataBehind(claim) {
			delete(s.byUID, uid)
		}
	}
}

// syncMetadata does the next step for the metadata of a claim that was changed before the claim is
// Completed. It is part of the finisher's step, so that it never conflicts with the binding. It
// returns what the plan has to know, or that a transaction was written and the step is over. The metadataSyncer does it for claims that are Completed.
func (f *finisher) syncMetadata(ctx context.Context, u *unfinishedClaim, seen view, now time.Time) (change plan.MetadataChange, stepped bool, err error) {
	claim, rollout := seen.claim, u.work.metadata
	switch {
	case claim.Status.ObservedGeneration == claim.Generation:
		if rollout != nil && rollout.isQuiet(now) {
			u.work.metadata = nil
		}
		return change, false, nil
	case len(seen.held) == 0:
		return change, false, nil
	case rollout == nil:
		rollout = newMetadataRollout()
		u.work.metadata = rollout
	case rollout.isDone(claim):
		return plan.MetadataChange{Report: &rollout.report}, false, nil
	}
	rollout.begin(claim, now)
	if now.Before(rollout.next()) || !now.Before(plan.Deadline(claim, u.startTime())) {
		return plan.MetadataChange{Behind: true}, false, nil // its end does not wait for this
	}
	wrote, done, err := f.writer.step(ctx, rollout, claim, seen.held)
	throttled := throttledFor(err)
	switch {
	case throttled > 0: // the rest of the step may have writes that are not rejected
		rollout.throttledUntil = now.Add(throttled)
		return plan.MetadataChange{Behind: true}, false, nil
	case err != nil:
		return change, false, err
	case done:
		return plan.MetadataChange{Report: &rollout.report}, false, nil
	}
	if len(wrote) > 0 {
		u.setWritten(seen, claim, wrote)
	}
	return change, true, nil
}
