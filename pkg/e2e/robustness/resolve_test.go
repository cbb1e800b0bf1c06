// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// attemptAnnotation has the attempt of the create that stored a claim.
const attemptAnnotation = "robustness.sandlot.io/attempt"

// resolver compares calls with what was stored.
type resolver struct {
	// created are the changes that stored a claim first, by attempt, and deleted those that deleted an object, by its UID.
	created map[string]*change
	deleted map[types.UID]*change
	// states are the states of claims, by UID and revision.
	states   map[types.UID]map[int64]*v1alpha1.SandboxClaim
	resolved []*call
	// explained are the UIDs of deleted objects that a client has deleted.
	explained map[types.UID]bool
	problems  []string
}

// resolve returns calls without unknown outcomes: each of these was carried out, by the time at which the
// record has its effect, or it was not and is left out. It also returns in what the answers and what was
// stored disagree.
func resolve(calls []*call, changes []change) (resolved []*call, problems []string) {
	r := &resolver{
		created: map[string]*change{}, deleted: map[types.UID]*change{}, explained: map[types.UID]bool{},
		states: map[types.UID]map[int64]*v1alpha1.SandboxClaim{},
	}
	r.read(changes)
	for _, c := range calls {
		if c.Outcome == succeeded && (c.Verb == deleteClaim || c.Verb == releaseSandbox) {
			r.explained[c.UID] = true
		}
	}
	attempts := map[string]bool{}
	for _, c := range calls {
		switch c.Verb {
		case createClaim:
			attempts[c.Attempt] = true
			r.create(c)
		case deleteClaim, releaseSandbox:
			r.remove(c)
		default:
			if c.Outcome != unknown {
				r.resolved = append(r.resolved, c)
			}
		}
	}
	for attempt, stored := range r.created {
		if !attempts[attempt] {
			r.problem("claim %s/%s (%s) is stored, and no client created it", stored.Namespace, stored.Name, stored.Claim.UID)
		}
		if uid := stored.Claim.UID; r.deleted[uid] != nil && !r.explained[uid] {
			r.problem("claim %s/%s (%s) was deleted, and no client deleted it", stored.Namespace, stored.Name, uid)
		}
	}
	slices.Sort(r.problems)
	return r.resolved, r.problems
}

func (r *resolver) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *resolver) read(changes []change) {
	last := map[string]types.UID{}
	for i := range changes {
		c := &changes[i]
		object := c.object()
		if object == nil {
			r.deleted[last[c.key()]] = c
			continue
		}
		last[c.key()] = object.GetUID()
		if c.Claim == nil {
			continue
		}
		if c.Created {
			attempt := c.Claim.Annotations[attemptAnnotation]
			if before := r.created[attempt]; before != nil {
				r.problem("create %s of claim %s/%s was stored twice: at revision %d and at %d", attempt, c.Namespace, c.Name, before.Revision, c.Revision)
			}
			r.created[attempt] = c
		}
		if r.states[object.GetUID()] == nil {
			r.states[object.GetUID()] = map[int64]*v1alpha1.SandboxClaim{}
		}
		r.states[object.GetUID()][c.Revision] = c.Claim
	}
}

// create resolves a create.
func (r *resolver) create(c *call) {
	stored := r.created[c.Attempt]
	switch {
	case c.DryRun && stored != nil:
		r.problem("%s; and is stored at revision %d", c, stored.Revision)
		return
	case c.DryRun:
		return
	case c.Outcome == unknown && stored == nil:
		return // it was never carried out
	case c.Outcome == unknown:
		carriedOut := *c
		carriedOut.Outcome, carriedOut.End = succeeded, max(c.Start, stored.Seen)
		carriedOut.UID, carriedOut.Revision, carriedOut.Sandboxes = stored.Claim.UID, stored.Revision, listedBy(stored.Claim)
		c = &carriedOut
	case c.Outcome != succeeded && stored != nil:
		r.problem("%s (%s); and is stored at revision %d, with sandboxes %v", c, c.Error, stored.Revision, listedBy(stored.Claim))
		return
	case c.Outcome == succeeded && (stored == nil || stored.Claim.UID != c.UID):
		r.problem("%s; and is not stored", c)
	case c.Outcome == succeeded:
		state := r.states[c.UID][c.Revision]
		if state == nil || !slices.Equal(listedBy(state), c.Sandboxes) {
			r.problem("%s; and there is no such state", c)
		}
		if c.Revision != stored.Revision {
			// The server has waited for more. The answer is what a get would have returned.
			answer := *c
			answer.Verb = getClaim
			r.resolved = append(r.resolved, &answer)
			asStored := *c
			asStored.Revision, asStored.Sandboxes = stored.Revision, listedBy(stored.Claim)
			c = &asStored
		}
	}
	r.resolved = append(r.resolved, c)
}

// remove resolves a delete of a claim or a release of a sandbox, whose UID the request had.
func (r *resolver) remove(c *call) {
	deleted := r.deleted[c.UID]
	switch {
	case c.Outcome == succeeded && deleted == nil:
		r.problem("%s; and is still there", c)
	case c.Outcome == unknown && (deleted == nil || r.explained[c.UID] || deleted.Seen < c.Start):
		return // it was not carried out, or changed nothing
	case c.Outcome == unknown:
		// The first of several has the longest time in which it can have been carried out.
		r.explained[c.UID] = true
		carriedOut := *c
		carriedOut.Outcome, carriedOut.End = succeeded, deleted.Seen
		c = &carriedOut
	}
	r.resolved = append(r.resolved, c)
}

// listedBy returns the UIDs of the sandboxes that a claim lists, in order.
func listedBy(claim *v1alpha1.SandboxClaim) []types.UID {
	var uids []types.UID
	for _, entry := range claim.Status.Sandboxes {
		uids = append(uids, entry.UID)
	}
	slices.Sort(uids)
	return uids
}

// seconds is for messages.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
