// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"strconv"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Listener is notified of pools that can serve again.
type Listener interface {
	// Stocked is called when a sandbox of the pool can be taken that could not be
	// before: for each, from the goroutine of the watch. It must not block.
	Stocked(Pool)
}

// Feed turns the events of a watch of sandboxes and sets into the index's state.
// Nothing else enters sandboxes. Its methods are called from one goroutine per
// watch, in the order of that watch.
type Feed struct {
	index    *Index
	listener Listener
	now      func() time.Time
}

// NewFeed returns a Feed into index. now is the clock with which a sandbox's
// shutdownTime is compared.
func NewFeed(index *Index, listener Listener, now func() time.Time) *Feed {
	return &Feed{index: index, listener: listener, now: now}
}

// SandboxesListed takes in a list of all sandboxes as of resourceVersion: those that
// are not in it are gone.
func (f *Feed) SandboxesListed(all []*v1alpha1.Sandbox, resourceVersion uint64) {
	listed := make(map[entryKey]struct{}, len(all))
	for _, sb := range all {
		listed[entryKey{sb.Namespace, sb.Name}] = struct{}{}
		f.SandboxChanged(sb)
	}
	f.index.Retain(func(namespace, name string) bool {
		_, ok := listed[entryKey{namespace, name}]
		return ok
	}, resourceVersion)
}

// SandboxChanged takes in the current state of a sandbox.
func (f *Feed) SandboxChanged(sb *v1alpha1.Sandbox) {
	c, ok := CandidateOf(sb, f.now())
	if !ok {
		f.SandboxDeleted(sb)
		return
	}
	if f.index.Upsert(c) {
		f.listener.Stocked(c.Pool)
	}
}

// SandboxDeleted takes in that a sandbox is gone.
func (f *Feed) SandboxDeleted(sb *v1alpha1.Sandbox) {
	f.index.Remove(sb.Namespace, sb.Name, ParseVersion(sb.ResourceVersion))
}

// PoolListed takes in the sandboxes of one pool from a list, as of
// resourceVersion, that may be ahead of the watch. Unlike the other methods it
// may be called from any goroutine.
func (f *Feed) PoolListed(p Pool, all []*v1alpha1.Sandbox, resourceVersion uint64) {
	var cs []Candidate
	for _, sb := range all {
		if c, ok := CandidateOf(sb, f.now()); ok && c.Pool == p {
			cs = append(cs, c)
		}
	}
	if f.index.UpsertListed(cs, resourceVersion) {
		f.listener.Stocked(p)
	}
}

// SetChanged takes in the current state of a set.
func (f *Feed) SetChanged(set *v1alpha1.SandboxSet) {
	f.index.MarkTarget(PoolOf(set), set.Status.UpdateRevision)
}

// SetDeleted takes in that a set is gone.
func (f *Feed) SetDeleted(set *v1alpha1.SandboxSet) {
	f.index.MarkTarget(PoolOf(set), "")
}

// CandidateOf returns the candidate that a sandbox is, if it can be claimed at now:
// see claims.Available.
func CandidateOf(sb *v1alpha1.Sandbox, now time.Time) (Candidate, bool) {
	if !claims.Available(sb, now) {
		return Candidate{}, false
	}
	// The controlling set decides, not a label that any user may write.
	set := v1alpha1.PoolOf(sb)
	return Candidate{
		Pool:            Pool{Namespace: sb.Namespace, Name: set.Name, UID: string(set.UID)},
		Name:            sb.Name,
		ResourceVersion: ParseVersion(sb.ResourceVersion),
		Revision:        sb.Labels[v1alpha1.LabelTemplateHash],
		Node:            sb.Status.NodeName,
	}, true
}

// PoolOf is the pool of a set.
func PoolOf(set *v1alpha1.SandboxSet) Pool {
	return Pool{Namespace: set.Namespace, Name: set.Name, UID: string(set.UID)}
}

// ParseVersion reads a resourceVersion of our own store, which is etcd's
// revision. Anything else is older than everything.
func ParseVersion(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
