// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metadatasync"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/rebind"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Feeds receives the events of the watches of the four kinds, and of nodes. Methods of one kind are
// called from one goroutine, in order, and must not change the objects. A ...Listed method replaces
// all objects of its kind as of resourceVersion.
type Feeds struct {
	stock      *candidates.Stock
	unfinished *unfinishedClaims
	// metadata syncs changed metadata of claims, and rebinder reopens claims that have lost their sandbox.
	metadata *metadatasync.Syncer
	rebinder *rebind.Rebinder
	lag      *metrics.Lag
	// Nodes takes in which nodes of the cluster take pods. Sandboxes on others are handed out last.
	Nodes *poolindex.Nodes
}

// ClaimsListed takes in all claims, when the server starts or its watch broke.
func (f *Feeds) ClaimsListed(all []*v1alpha1.SandboxClaim, resourceVersion uint64) {
	listed := make(map[types.UID]bool, len(all))
	for _, claim := range all {
		listed[claim.UID] = true
		f.observeClaim(claim, false)
		f.rebinder.Listed(claim)
	}
	for uid, u := range f.unfinished.namespaces.all() {
		if claim := u.latest(); !listed[uid] && claim != nil && poolindex.ParseVersion(claim.ResourceVersion) <= resourceVersion {
			u.setDeleted()
			f.unfinished.due.Add(uid)
		}
	}
	f.metadata.Listed(listed, resourceVersion)
}

// ClaimChanged takes in a claim that was created or changed.
func (f *Feeds) ClaimChanged(claim *v1alpha1.SandboxClaim) { f.observeClaim(claim, true) }

// observeClaim takes in the state of a claim. isEvent is true for an event of the watch, and
// false for an item of a list.
func (f *Feeds) observeClaim(claim *v1alpha1.SandboxClaim, isEvent bool) {
	u := f.unfinished.of(claim.UID)
	isNewer := u == nil || u.setClaim(claim)
	switch {
	case isNewer && claims.Unfinished(claim) && f.unfinished.of(claim.UID) == nil: // or no more
		f.unfinished.adopt(claim, isEvent && !plan.IsReopened(claim))
	case isNewer && u != nil:
		f.unfinished.due.Add(claim.UID)
	}
	f.metadata.ObserveClaim(claim)
	f.rebinder.ObserveClaim(claim)
}

// ClaimDeleted takes in that a claim is gone.
func (f *Feeds) ClaimDeleted(claim *v1alpha1.SandboxClaim) {
	if u := f.unfinished.of(claim.UID); u != nil {
		u.setDeleted()
		f.unfinished.due.Add(claim.UID)
	}
	f.metadata.ObserveClaimDeleted(claim.UID)
}

// SandboxesListed takes in all sandboxes.
func (f *Feeds) SandboxesListed(all []*v1alpha1.Sandbox, resourceVersion uint64) {
	f.stock.Feed.SandboxesListed(all, resourceVersion)
	f.lag.Observe(resourceVersion)
	for uid, u := range f.unfinished.namespaces.all() {
		u.markIncomplete() // some of its sandboxes may be gone
		f.unfinished.due.Add(uid)
	}
}

// perHeld is how much later a claim is due for each sandbox that it holds when one of them changes,
// because an attempt looks at all of them.
const perHeld = 50 * time.Microsecond

// SandboxChanged takes in the current state of a sandbox.
func (f *Feeds) SandboxChanged(sb *v1alpha1.Sandbox) {
	f.stock.Feed.SandboxChanged(sb)
	f.lag.Observe(poolindex.ParseVersion(sb.ResourceVersion))
	f.rebinder.ObserveSandbox(sb)
	if u, uid := f.unfinished.ownerOf(sb); u != nil {
		if isNewer, held := u.setSandbox(sb); isNewer {
			f.unfinished.due.AddAfter(uid, time.Duration(held/10)*10*perHeld)
		}
	}
}

// SandboxDeleted takes in that a sandbox is gone.
func (f *Feeds) SandboxDeleted(sb *v1alpha1.Sandbox) {
	f.stock.Feed.SandboxDeleted(sb)
	f.lag.Observe(poolindex.ParseVersion(sb.ResourceVersion))
	f.rebinder.ObserveSandboxDeleted(sb)
	if u, uid := f.unfinished.ownerOf(sb); u != nil {
		u.setSandboxDeleted(sb)
		f.unfinished.due.Add(uid)
	}
	f.unfinished.wakeNamed(types.NamespacedName{Namespace: sb.Namespace, Name: sb.Name})
}

// SetsListed takes in all sets.
func (f *Feeds) SetsListed(all []*v1alpha1.SandboxSet, resourceVersion uint64) {
	gone := f.stock.Sets.Replace(all, resourceVersion)
	for _, set := range all {
		f.stock.Feed.SetChanged(set)
	}
	for _, p := range gone {
		f.stock.Index.MarkTarget(p, "")
	}
	f.stock.ResumeAll()
	f.unfinished.wake()
}

// SetChanged takes in the current state of a set. Claims that it did not serve, or
// that it is meant to hold less or more for, look again.
func (f *Feeds) SetChanged(set *v1alpha1.SandboxSet) {
	before := f.stock.Sets.Change(set)
	f.stock.Feed.SetChanged(set)
	f.stock.Resume(set.Namespace, func(p poolindex.Pool) bool { return p == poolindex.PoolOf(set) })
	f.setChanged(candidates.SetChange{Before: before, After: set})
}

// SetDeleted takes in that a set is gone.
func (f *Feeds) SetDeleted(set *v1alpha1.SandboxSet) {
	f.stock.Sets.Delete(set)
	f.stock.Feed.SetDeleted(set)
	f.stock.Resume(set.Namespace, func(p poolindex.Pool) bool { return p == poolindex.PoolOf(set) })
	f.setChanged(candidates.SetChange{Before: set})
}

// setChanged lets the claims look again to which a change of a set may matter.
func (f *Feeds) setChanged(change candidates.SetChange) {
	before, after := change.Before, change.After
	f.reportCause(before, after)
	switch {
	case after == nil:
		f.unfinished.wakeServed(before.Namespace, before)
	case before == nil, before.UID != after.UID, claims.Serving(before) != claims.Serving(after):
		f.unfinished.wakeServed(after.Namespace, before, after)
	case before.Generation != after.Generation, podtemplate.HolderOf(&before.Status) != podtemplate.HolderOf(&after.Status):
		f.unfinished.wakeServed(after.Namespace) // sandboxes can be made of it now, perhaps
	}
}

// TemplatesListed takes in all templates.
func (f *Feeds) TemplatesListed([]*v1alpha1.SandboxTemplate, uint64) {
	f.stock.ResumeAll()
	f.unfinished.wake()
}

// TemplateChanged takes in that a template is new, another, or gone, which may be the end of a
// circle. Claims that could not be served for want of it look again.
func (f *Feeds) TemplateChanged(template *v1alpha1.SandboxTemplate) {
	f.stock.Resume(template.Namespace, func(poolindex.Pool) bool { return true })
	f.unfinished.wakeServed(template.Namespace)
}
