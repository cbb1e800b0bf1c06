// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// pool is the sandboxes of a set, as far as the controller knows.
type pool struct {
	// sandboxes are those that the set controls, as the cache shows them.
	sandboxes []*v1alpha1.Sandbox
	// expectedCreates are sandboxes that this controller has created and whose arrival in the
	// cache it has not noticed yet, with their revisions. Some may already be among
	// sandboxes: the cache is filled before its events are handled.
	expectedCreates map[types.UID]string
	// expectedDeletes are sandboxes that this controller has deleted, whose end it has not
	// noticed yet. They count as gone.
	expectedDeletes sets.Set[types.UID]
}

// poolCounts is a pool, sorted by what its sandboxes are good for.
type poolCounts struct {
	// available can be claimed now; creating will be. Together with unseenCreates (own
	// creates that the cache does not show) they are the unused sandboxes.
	available, creating []*v1alpha1.Sandbox
	unseenCreates       int
	// notPickedUp are those among creating that no controller of pods has picked up yet.
	notPickedUp int
	// updated... are those of the target revision.
	updatedAvailable, updatedCreating, updatedUnseenCreates int
	// ended will never be claimed.
	ended []*v1alpha1.Sandbox
	// outcome is how those of the target revision fare.
	outcome outcome
	// blocked counts those among creating that fail to start.
	blocked blockedSlots
}

// record takes in what a reconcile has done to a pool whose target revision is revision.
func (p *pool) record(done *written, revision string) {
	for sandbox := range done.created {
		p.expectedCreates[sandbox] = revision
	}
	for sandbox := range done.deleted {
		p.expectedDeletes.Insert(sandbox)
	}
}

func (c *poolCounts) unused() int { return len(c.available) + len(c.creating) + c.unseenCreates }
func (c *poolCounts) updated() int {
	return c.updatedAvailable + c.updatedCreating + c.updatedUnseenCreates
}

// count counts the pool of a set whose target revision is target.
func (p *pool) count(target string, now time.Time) poolCounts {
	c := poolCounts{unseenCreates: len(p.expectedCreates)}
	for _, r := range p.expectedCreates {
		if r == target {
			c.updatedUnseenCreates++
		}
	}
	for _, sandbox := range p.sandboxes {
		if r, ok := p.expectedCreates[sandbox.UID]; ok {
			c.unseenCreates--
			if r == target {
				c.updatedUnseenCreates--
			}
		}
		if p.expectedDeletes.Has(sandbox.UID) {
			continue
		}
		updated := revisionOf(sandbox) == target
		switch stateInPool(sandbox, now) {
		case stateAvailable:
			c.available = append(c.available, sandbox)
			if updated {
				c.updatedAvailable++
				c.outcome.recordAvailable(sandbox, now)
			}
		case stateCreating:
			c.creating = append(c.creating, sandbox)
			if meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady) == nil {
				c.notPickedUp++
			}
			if updated {
				c.updatedCreating++
			}
		case stateEnded:
			c.ended = append(c.ended, sandbox)
			if updated {
				c.outcome.recordEnded(sandbox)
			}
		}
	}
	return c
}

// poolState is what one sandbox of a pool is good for.
type poolState int

const (
	stateNone poolState = iota // not to be counted or deleted by the set
	stateCreating
	stateAvailable
	stateEnded
)

// stateInPool follows the derived state, except:
//   - A locked sandbox belongs to a client that has not taken it out of the pool yet.
//     It does not count, so that the pool is full without it, and it is left alone.
//     The lock of a scale-down by OpenKruise Agents that was interrupted protects
//     nothing.
//   - A paused sandbox was set aside by a user: the set never pauses one. It does
//     not count, so that the pool is full without it, and is left alone, also by a
//     scale-down, as what it keeps may be wanted. It counts again once it is
//     resumed, and goes with the set.
//   - A sandbox without an address cannot be handed out, whatever its conditions.
//   - A failed sandbox that is kept for debugging is left alone.
func stateInPool(sandbox *v1alpha1.Sandbox, now time.Time) poolState {
	if sandbox.DeletionTimestamp != nil {
		return stateNone
	}
	if sandbox.Annotations[v1alpha1.AnnotationOwner] == v1alpha1.OwnerScaleDown {
		return stateEnded
	}
	if claims.Available(sandbox, now) {
		return stateAvailable
	}
	if v1alpha1.StateOf(sandbox, now) == v1alpha1.StateDead {
		if v1alpha1.IsReservedFailed(sandbox) {
			return stateNone
		}
		return stateEnded
	}
	if sandbox.Annotations[v1alpha1.AnnotationLock] != "" || sandbox.Spec.Paused {
		return stateNone
	}
	return stateCreating
}

// outcome is how the sandboxes of the target revision fare.
type outcome struct {
	// ended of them have ended; newestEnded is when the newest of those was created,
	// and newestAvailable the newest that has been available for provenAfter.
	ended                        int
	newestEnded, newestAvailable time.Time
	// nextProven is when one that is available has been so for provenAfter; zero if there is none.
	nextProven time.Time
}

// recordAvailable records a sandbox that is available.
func (o *outcome) recordAvailable(sandbox *v1alpha1.Sandbox, now time.Time) {
	ready := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	if proven := ready.LastTransitionTime.Add(provenAfter); proven.After(now) {
		if o.nextProven.IsZero() || proven.Before(o.nextProven) {
			o.nextProven = proven
		}
		return
	}
	o.newestAvailable = later(o.newestAvailable, sandbox.CreationTimestamp.Time)
}

// recordEnded counts a sandbox that will never be claimed, if it ended by itself.
func (o *outcome) recordEnded(sandbox *v1alpha1.Sandbox) {
	switch sandbox.Status.Phase {
	case v1alpha1.SandboxFailed, v1alpha1.SandboxSucceeded:
		o.ended++
		o.newestEnded = later(o.newestEnded, sandbox.CreationTimestamp.Time)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func revisionOf(sandbox *v1alpha1.Sandbox) string { return sandbox.Labels[v1alpha1.LabelTemplateHash] }

// uidsOf returns the UIDs of sandboxes.
func uidsOf(sandboxes []*v1alpha1.Sandbox) sets.Set[types.UID] {
	uids := make(sets.Set[types.UID], len(sandboxes))
	for _, sandbox := range sandboxes {
		uids.Insert(sandbox.UID)
	}
	return uids
}
