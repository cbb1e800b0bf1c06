// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"time"

	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// bringMetadata does a step of bringing the metadata of a claim, which was changed while it
// gets its sandboxes, to those that it has: it is part of a turn, so that it and the
// binding never meet. It returns what the plan has to know, or that a transaction was
// written and the turn is over. The metadataSyncer does it for claims that are Completed.
func (w *finisher) bringMetadata(ctx context.Context, u *unfinished, seen view, now time.Time) (change plan.MetadataChange, stepped bool, err error) {
	claim, pass := seen.claim, u.work.metadata
	switch {
	case claim.Status.ObservedGeneration == claim.Generation:
		if pass != nil && pass.isQuiet(now) {
			u.work.metadata = nil
		}
		return change, false, nil
	case len(seen.held) == 0:
		return change, false, nil
	case pass == nil:
		pass = newMetadataPass()
		u.work.metadata = pass
	case pass.isDone(claim):
		return plan.MetadataChange{Report: &pass.report}, false, nil
	}
	pass.begin(claim, now)
	if now.Before(pass.next()) || !now.Before(plan.Deadline(claim, u.start())) {
		return plan.MetadataChange{Behind: true}, false, nil // its end does not wait for this
	}
	wrote, done, err := w.passer.step(ctx, pass, claim, seen.held)
	throttled := throttledFor(err)
	switch {
	case throttled > 0: // the rest of the turn may have writes that are not rejected
		pass.throttledUntil = now.Add(throttled)
		return plan.MetadataChange{Behind: true}, false, nil
	case err != nil:
		return change, false, err
	case done:
		return plan.MetadataChange{Report: &pass.report}, false, nil
	}
	if len(wrote) > 0 {
		u.wrote(seen, claim, wrote)
	}
	return change, true, nil
}
