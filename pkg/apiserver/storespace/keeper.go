// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// lookEvery is how often etcd is measured, and lookSoon while it is nearly full, or would
	// be by what this server has written since.
	lookEvery, lookSoon = 5 * time.Second, time.Second

	// keptHistory is how much history is left by a compaction that is early, and leastHistory
	// if that does not help. Watches that are behind it list again.
	keptHistory, leastHistory = 10 * time.Second, 2 * time.Second

	// statusTimeout, compactTimeout and defragmentTimeout bound single calls.
	statusTimeout, compactTimeout, defragmentTimeout = 5 * time.Second, time.Minute, 10 * time.Minute
)

// KeeperOptions are what a Keeper works with.
type KeeperOptions struct {
	Etcd  *clientv3.Client
	Space *Space
	Clock clock.WithTicker
	// Owner reports whether this server is the one of all servers that compacts early,
	// defragments and disarms.
	Owner func() bool
	// Compact and Defragment say whether this etcd is compacted, and defragmented and
	// disarmed, by its API servers.
	Compact, Defragment bool
}

// Keeper measures etcd, and makes room in it.
type Keeper struct {
	KeeperOptions
	// revisions are those of the last minute, the oldest first.
	revisions []revisionAt
	early     earlyCompaction
	healing   healing
}

type revisionAt struct {
	at       time.Time
	revision int64
}

// NewKeeper returns a Keeper, which does nothing before Run.
func NewKeeper(o KeeperOptions) *Keeper { return &Keeper{KeeperOptions: o} }

// Run works until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	ticker := k.Clock.NewTicker(lookSoon)
	defer ticker.Stop()
	var last time.Time
	for {
		if k.Space.pressure().used >= squeezedFrom || k.Clock.Since(last) >= lookEvery {
			last = k.Clock.Now()
			k.Look(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Look measures etcd once, and makes room if there is little.
func (k *Keeper) Look(ctx context.Context) {
	written := k.Space.Written()
	m := k.members(ctx)
	if len(m) == 0 {
		return // no member answers
	}
	k.Space.Measured(m.file(), m.inUse(), m.quota(), written)
	used := k.Space.pressure().used
	usedRatio.Set(used)
	revision := m.revision()
	k.note(revision)
	if !k.Compact || !k.Owner() {
		return
	}
	switch {
	case m.alarmed() && k.Defragment:
		k.heal(ctx, m)
	case used >= squeezedFrom:
		k.compactEarly(ctx, used)
		k.defragment(ctx, m)
	default:
		k.defragment(ctx, m)
	}
}

// note remembers a revision.
func (k *Keeper) note(revision int64) {
	now := k.Clock.Now()
	k.revisions = append(k.revisions, revisionAt{now, revision})
	for len(k.revisions) > 1 && now.Sub(k.revisions[0].at) > time.Minute {
		k.revisions = k.revisions[1:]
	}
}

// revisionBefore returns the newest revision that is known to be older than a duration; 0 if
// there is none.
func (k *Keeper) revisionBefore(age time.Duration) int64 {
	var found int64
	for _, r := range k.revisions {
		if k.Clock.Since(r.at) >= age {
			found = r.revision
		}
	}
	return found
}

// worthDefragmenting reports whether the file of a member, which the quota counts, is near the
// quota and would be much smaller: half as large, or, where it is about to be full, by an eighth
// of the quota. No request is answered meanwhile, about a second for 200 MB in use.
func worthDefragmenting(file, inUse, quota int64) bool {
	free := file - inUse
	return file > quota/4*3 && free >= inUse || file > quota/10*9 && free >= quota/8
}

// defragment gives back the free space of the file of one member, if that is worth it. The leader
// comes last.
func (k *Keeper) defragment(ctx context.Context, m members) {
	if !k.Defragment {
		return
	}
	for _, member := range m {
		if quota := member.quota(); quota > 0 && worthDefragmenting(member.DbSize, member.DbSizeInUse, quota) {
			k.defragmentOne(ctx, member)
			return
		}
	}
}

// defragmentOne reports whether a member was defragmented.
func (k *Keeper) defragmentOne(ctx context.Context, m *member) bool {
	within, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	log := klog.FromContext(ctx).WithValues("endpoint", m.endpoint, "bytes", m.DbSize, "bytesInUse", m.DbSizeInUse)
	if _, err := k.Etcd.Defragment(within, m.endpoint); err != nil {
		log.Error(err, "Failed to defragment a member of etcd")
		return false
	}
	log.Info("Defragmented a member of etcd")
	return true
}
