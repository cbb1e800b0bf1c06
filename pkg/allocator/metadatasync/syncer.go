// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadatasync writes changed labels, annotations and additionalPodMetadata of claims to the sandboxes
// that they hold: the Writer some at a time, for a Rollout, and the Syncer for claims that are Completed.
package metadatasync

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
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// AtOnce is how many claims a server brings changed metadata of to sandboxes at the same
// time, so that the others of the workers continue binding. A namespace has as many as it leaves free.
const AtOnce = 16

// Syncer has the claims that are Completed and have been given other metadata since, on
// every server, and what this server knows of those that it works on. A claim
// that is not changed is not among them, and one leaves when its sandboxes have what it
// says and nothing has been written for a while. It is level-triggered: what is left to do is
// in the claim's observedGeneration, and which sandboxes have it is in these.
type Syncer struct {
	writer     *Writer
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
	rollout *Rollout
}

// NewSyncer returns a Syncer that knows no claims.
func NewSyncer(r *reconciler.Reconciler, p *Writer) *Syncer {
	return &Syncer{writer: p, reconciler: r, byUID: map[types.UID]*edited{}}
}

// ObserveClaim takes in the state of a claim.
func (s *Syncer) ObserveClaim(claim *v1alpha1.SandboxClaim) {
	s.mu.Lock()
	defer s.mu.Unlock() // so that it is not forgotten meanwhile
	known := s.byUID[claim.UID]
	if known == nil && claims.MetadataBehind(claim) {
		known = &edited{namespace: claim.Namespace, rollout: NewRollout()}
		s.byUID[claim.UID] = known
	}
	if known != nil && known.setClaim(claim) {
		s.reconciler.Queue.Add(claim.UID)
	}
}

// ObserveClaimDeleted takes in that a claim is gone.
func (s *Syncer) ObserveClaimDeleted(uid types.UID) {
	known := s.of(uid)
	if known == nil {
		return
	}
	known.mu.Lock()
	known.deleted = true
	known.mu.Unlock()
	s.reconciler.Queue.Add(uid)
}

// Listed takes in which claims there are as of a resourceVersion.
func (s *Syncer) Listed(all map[types.UID]bool, resourceVersion uint64) {
	for uid, known := range s.all() {
		if claim := known.latest(); claim != nil && !all[uid] && poolindex.ParseVersion(claim.ResourceVersion) <= resourceVersion {
			s.ObserveClaimDeleted(uid)
		}
	}
}

// Wake makes every claim due.
func (s *Syncer) Wake() {
	for uid := range s.all() {
		s.reconciler.Queue.Add(uid)
	}
}

func (s *Syncer) all() map[types.UID]*edited {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byUID)
}

// setClaim takes in the state of the claim, and reports whether it is newer than the known one.
func (e *edited) setClaim(claim *v1alpha1.SandboxClaim) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claim != nil && poolindex.ParseVersion(claim.ResourceVersion) <= poolindex.ParseVersion(e.claim.ResourceVersion) {
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

// NamespaceOf implements reconciler.Subreconciler.
func (s *Syncer) NamespaceOf(uid types.UID) string {
	if known := s.of(uid); known != nil {
		return known.namespace
	}
	return ""
}

// of returns what is known of a claim; nil if it is not among these.
func (s *Syncer) of(uid types.UID) *edited {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUID[uid]
}

// Reconcile implements reconciler.Subreconciler.
func (s *Syncer) Reconcile(ctx context.Context, uid types.UID) (again time.Duration, err error) {
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
	if err != nil && storage.ThrottledFor(err) == 0 {
		known.held, known.read = nil, false // whatever was written, the store knows
	}
	return again, err
}

// sync does the next step for a claim, and returns after what time to do another; 0 means when
// there is an event.
func (s *Syncer) sync(ctx context.Context, uid types.UID, known *edited, claim *v1alpha1.SandboxClaim) (time.Duration, error) {
	now := s.writer.Clock.Now()
	switch {
	case !s.reconciler.IsMine(uid):
		known.held, known.read = nil, false
		if !claims.MetadataBehind(claim) {
			s.forget(uid)
		}
		return 0, nil
	case claims.MetadataBehind(claim):
		if !known.rollout.IsDone(claim) {
			known.rollout.Begin(claim, now)
		}
	case known.rollout.IsQuiet(now):
		s.forget(uid)
		return 0, nil
	case known.rollout.spacing.IsOver(now):
		// Nothing is to be brought, also where a change was not: others have brought it, or
		// the claim is opened again or deleted. Only the backoff is remembered.
		return known.rollout.spacing.Until.Add(quietTime).Sub(now), nil
	}
	if !known.rollout.spacing.IsOver(now) {
		return known.rollout.spacing.Until.Sub(now), nil
	}
	if !known.rollout.IsDone(claim) {
		if err := s.read(ctx, known, claim); err != nil {
			return 0, err
		}
		wrote, done, err := s.writer.Step(ctx, known.rollout, claim, known.held)
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
func (s *Syncer) read(ctx context.Context, known *edited, claim *v1alpha1.SandboxClaim) error {
	if known.read {
		return nil
	}
	held, err := s.writer.Store.SandboxesOf(ctx, claim)
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
func (s *Syncer) recordSynced(ctx context.Context, known *edited, claim *v1alpha1.SandboxClaim) error {
	next := plan.MetadataSynced(claim, &known.rollout.report, known.held, s.writer.Clock.Now())
	if err := storage.UpdateClaim(ctx, s.writer.Store, next); err != nil {
		return err
	}
	known.setClaim(next)
	return nil
}

// forget ends the work on a claim, unless it was changed again.
func (s *Syncer) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byUID[uid]; known != nil {
		if claim := known.latest(); claim == nil || !claims.MetadataBehind(claim) {
			delete(s.byUID, uid)
		}
	}
}
