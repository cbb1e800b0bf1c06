// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
)

const (
	// namedFailures is how many sandboxes a claim names that could not be resized.
	namedFailures = 3
	// maxReason bounds what is told of one of them.
	maxReason = 256
)

// resizes counts how the resizes of a claim's sandboxes went.
type resizes struct {
	succeeded, failed, running int
	// reasons are those of the first that failed.
	reasons []string
}

// add takes in a sandbox. One that never was to be resized changes nothing.
func (r *resizes) add(sb *v1alpha1.Sandbox) {
	update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	switch {
	case update == nil:
	case update.Status == metav1.ConditionTrue:
		r.succeeded++
	case podresize.InProgress(sb):
		r.running++
	default:
		r.failed++
		if len(r.reasons) < namedFailures {
			reason := update.Message
			if len(reason) > maxReason {
				reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
			}
			r.reasons = append(r.reasons, sb.Name+": "+reason)
		}
	}
}

// wasResized says whether a sandbox was resized, or was to be.
func wasResized(sb *v1alpha1.Sandbox) bool {
	return meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate) != nil
}

// counted takes in the sandboxes that count since a draft was written.
func (r *resizes) counted(d *draft) {
	for _, sb := range d.counts {
		r.add(sb)
	}
	for _, b := range d.binds {
		if !isStarting(b.sandbox) {
			r.add(b.sandbox)
		}
	}
}

// settled are the resizes of what the claim holds after the draft.
func (j *job) settled(d *draft) resizes {
	r := j.resizes
	r.reasons = slices.Clip(r.reasons) // the job's own stay
	leaving := make(map[string]bool, len(d.counts)+len(d.drops))
	for _, sb := range d.counts {
		leaving[sb.Name] = true
		r.add(sb)
	}
	for _, sb := range d.drops {
		leaving[sb.Name] = true
	}
	for _, b := range d.binds {
		r.add(b.sandbox)
	}
	var waiting []*v1alpha1.Sandbox
	for name, sb := range j.fresh {
		if !leaving[name] && wasResized(sb.Sandbox) {
			waiting = append(waiting, sb.Sandbox)
		}
	}
	// In a set order, or the same state would be told in other words each time.
	slices.SortFunc(waiting, func(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) })
	for _, sb := range waiting {
		r.add(sb)
	}
	return r
}

// report tells in the claim's status how resizes went; nothing, if there were none.
func (r *resizes) report(claim *v1alpha1.SandboxClaim, now time.Time) {
	switch {
	case r.failed > 0:
		message := fmt.Sprintf("%d of %d sandboxes could not be resized: %s",
			r.failed, r.failed+r.succeeded+r.running, strings.Join(r.reasons, "; "))
		if more := r.failed - len(r.reasons); more > 0 {
			message += fmt.Sprintf("; and %d more", more)
		}
		condition(claim, now, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonFailed, message)
	case r.running > 0:
		condition(claim, now, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating,
			fmt.Sprintf("Resizing %d sandboxes", r.running))
	case r.succeeded > 0:
		condition(claim, now, v1alpha1.ClaimConditionInplaceUpdate, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			fmt.Sprintf("Resized %d sandboxes", r.succeeded))
	default:
		meta.RemoveStatusCondition(&claim.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	}
}

// onlyResizes says whether the status of a claim changes in nothing but how its resizes
// go.
func onlyResizes(before, after *v1alpha1.SandboxClaim) bool {
	was, is := before.Status.DeepCopy(), after.Status.DeepCopy()
	meta.RemoveStatusCondition(&was.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	meta.RemoveStatusCondition(&is.Conditions, v1alpha1.ClaimConditionInplaceUpdate)
	return apiequality.Semantic.DeepEqual(was, is)
}

// observeResizes counts the resizes that a written draft has ended.
func (d *draft) observeResizes() {
	var ended resizes
	ended.counted(d)
	for _, sb := range d.drops {
		if wasResized(sb) {
			claimResizes.WithLabelValues(resultLetGo).Inc()
		}
	}
	claimResizes.WithLabelValues(resultSucceeded).Add(float64(ended.succeeded))
	claimResizes.WithLabelValues(resultFailed).Add(float64(ended.failed))
}
