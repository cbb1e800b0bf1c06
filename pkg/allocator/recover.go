// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"math"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// rebuild makes what is stored the job's state: after a restart, after another
// server or a client changed the claim, after an outcome that was unknown. stored
// is the claim as it is now, or nil where it is gone.
func (j *job) rebuild(ctx context.Context, stored *v1alpha1.SandboxClaim) error {
	if stored == nil || stored.UID != j.claim.UID || stored.DeletionTimestamp != nil {
		return j.abandon(ctx)
	}
	if err := j.describe(stored); err != nil {
		return err
	}
	j.at = version(stored)
	sandboxes, err := j.a.store.SandboxesOf(ctx, stored)
	if err != nil {
		return err
	}
	j.recover(sandboxes, j.a.options.Clock.Now())
	j.stale = false
	j.publish()
	return nil
}

// recover works out what the claim has, from its status and the sandboxes that
// name it as their owner:
//
//   - What the status lists counts, also where a user has deleted it since: it
//     is not replaced.
//   - A sandbox that is the user's already, and lives, counts if it is not
//     listed: a client lowered the status.
//   - If the status counts more than that, the status is believed.
//   - A sandbox that is still starting is on its way; one that is kept for
//     debugging is nobody's.
func (j *job) recover(sandboxes []*v1alpha1.Sandbox, now time.Time) {
	listed := make(map[string]bool, len(j.claim.Status.Sandboxes))
	for _, entry := range j.claim.Status.Sandboxes {
		listed[entry.Name] = true
	}
	before := j.fresh
	j.fresh, j.found, j.resizes = map[string]freshSandbox{}, nil, resizes{}
	for _, sb := range sandboxes {
		if sb.Labels[v1alpha1.LabelReservedFailedSandbox] == "true" || sb.DeletionTimestamp != nil {
			continue
		}
		if isStarting(sb) {
			// A second more than the claim allows: the time is known to the second.
			until := boundAt(sb).Add(j.waitReady() + time.Second)
			if known, ok := before[sb.Name]; ok {
				until = known.until
			}
			j.fresh[sb.Name] = freshSandbox{sb, until}
			continue
		}
		j.resizes.add(sb)
		if state := v1alpha1.StateOf(sb, now); state != v1alpha1.StateDead && !listed[sb.Name] {
			j.found = append(j.found, claimed(sb))
		}
	}
	j.unlisted = max(0, int(j.claim.Status.ClaimedReplicas)-len(listed)-len(j.found))
}

// boundAt is when a sandbox became the claim's: when it was made for it, or taken
// from a pool, where it may have been for long.
func boundAt(sb *v1alpha1.Sandbox) time.Time {
	if t, err := time.Parse(time.RFC3339, sb.Annotations[v1alpha1.AnnotationClaimTimestamp]); err == nil {
		return t
	}
	return sb.CreationTimestamp.Time
}

// abandon ends a job whose claim is gone: bound sandboxes stay with whoever has
// them, but what was only being made for the claim is let go.
func (j *job) abandon(ctx context.Context) error {
	for name, sb := range j.fresh {
		txn := j.a.store.Begin()
		if err := txn.UpdateSandbox(ctx, dropped(sb.Sandbox, false, j.a.options.Clock.Now()), version(sb.Sandbox)); err != nil {
			return err
		}
		commitCtx, cancel := j.a.detached(ctx, j.a.options.CommitTimeout)
		err := txn.Commit(commitCtx)
		cancel()
		if err := j.refetch(ctx, name, err); err != nil {
			return err
		}
	}
	if unfinished(j.claim) {
		j.observeEnd()
	}
	end(j.claim, j.a.options.Clock.Now(), "The claim was deleted")
	j.at = math.MaxInt64 // no news of it, such as that of its deletion, matters any more
	j.publish()
	return nil
}

// refetch takes in how letting go of a sandbox went. Where it had moved, it is
// read again, for the next try.
func (j *job) refetch(ctx context.Context, name string, err error) error {
	if err != nil {
		sandboxes, listErr := j.a.store.SandboxesOf(ctx, j.claim)
		if listErr != nil {
			return listErr
		}
		for _, sb := range sandboxes {
			if sb.Name == name && sb.DeletionTimestamp == nil {
				j.fresh[name] = freshSandbox{sb, j.fresh[name].until}
				return err
			}
		}
	}
	delete(j.fresh, name)
	return nil
}
