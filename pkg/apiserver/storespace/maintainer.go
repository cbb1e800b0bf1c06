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
	// statusInterval is how often etcd is measured. nearQuotaInterval replaces it from
	// throttleFrom on; what this server has written since the last measurement counts.
	statusInterval, nearQuotaInterval = 5 * time.Second, time.Second

	// keptHistory is how much history an early compaction keeps, and leastHistory from
	// throttleTo on. Watches that fall behind relist.
	keptHistory, leastHistory = 10 * time.Second, 2 * time.Second

	// statusTimeout, compactTimeout and defragmentTimeout bound single calls.
	statusTimeout, compactTimeout, defragmentTimeout = 5 * time.Second, time.Minute, 10 * time.Minute
)

// MaintainerOptions are the options of a Maintainer.
type MaintainerOptions struct {
	Etcd    *clientv3.Client
	Limiter *Limiter
	Clock   clock.WithTicker
	// IsMaintainer reports whether this server is the one of all servers that compacts early,
	// defragments and disarms.
	IsMaintainer func() bool
	// Compact lets API servers compact this etcd early, and Defragment lets them defragment
	// it and disarm its alarm.
	Compact, Defragment bool
}

// Maintainer measures etcd, and compacts and defragments it when it is nearly full.
type Maintainer struct {
	MaintainerOptions
	// revisions are those of the last minute, the oldest first.
	revisions []revisionAt
	early     earlyCompaction
	recovery  recovery
}

type revisionAt struct {
	at       time.Time
	revision int64
}

// NewMaintainer returns a Maintainer, which does nothing before Run.
func NewMaintainer(o MaintainerOptions) *Maintainer { return &Maintainer{MaintainerOptions: o} }

// Run calls Sync periodically until ctx is done.
func (m *Maintainer) Run(ctx context.Context) {
	ticker := m.Clock.NewTicker(nearQuotaInterval)
	defer ticker.Stop()
	var last time.Time
	for {
		if m.Limiter.pressure().used >= throttleFrom || m.Clock.Since(last) >= statusInterval {
			last = m.Clock.Now()
			m.Sync(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Sync measures etcd once, and compacts, defragments or recovers it if necessary.
func (m *Maintainer) Sync(ctx context.Context) {
	written := m.Limiter.Written()
	all := m.members(ctx)
	if len(all) == 0 {
		return // no member responds
	}
	m.Limiter.SetUsage(all.file(), all.inUse(), all.quota(), written)
	used := m.Limiter.pressure().used
	usedRatio.Set(used)
	revision := all.revision()
	m.recordRevision(revision)
	if !m.Compact || !m.IsMaintainer() {
		return
	}
	switch {
	case all.alarmed() && m.Defragment:
		m.clearNoSpace(ctx, all)
	case used >= throttleFrom:
		m.compactEarly(ctx, used)
		m.defragment(ctx, all)
	default:
		m.defragment(ctx, all)
	}
}

// recordRevision records the current revision.
func (m *Maintainer) recordRevision(revision int64) {
	now := m.Clock.Now()
	m.revisions = append(m.revisions, revisionAt{now, revision})
	for len(m.revisions) > 1 && now.Sub(m.revisions[0].at) > time.Minute {
		m.revisions = m.revisions[1:]
	}
}

// revisionBefore returns the newest revision that is known to be older than a duration; 0 if
// there is none.
func (m *Maintainer) revisionBefore(age time.Duration) int64 {
	var found int64
	for _, r := range m.revisions {
		if m.Clock.Since(r.at) >= age {
			found = r.revision
		}
	}
	return found
}

// worthDefragmenting reports whether the file of a member is near the quota and would become much
// smaller: it is above 75% of the quota and half free, or above 90% with an eighth of the quota
// free. The member is unavailable meanwhile, about a second per 200 MB in use.
func worthDefragmenting(file, inUse, quota int64) bool {
	free := file - inUse
	return file > quota/4*3 && free >= inUse || file > quota/10*9 && free >= quota/8
}

// defragment defragments one member for which that is worth it. The leader is last.
func (m *Maintainer) defragment(ctx context.Context, all members) {
	if !m.Defragment {
		return
	}
	for _, member := range all {
		if quota := member.quota(); quota > 0 && worthDefragmenting(member.DbSize, member.DbSizeInUse, quota) {
			m.defragmentOne(ctx, member)
			return
		}
	}
}

// defragmentOne reports whether a member was defragmented.
func (m *Maintainer) defragmentOne(ctx context.Context, one *member) bool {
	within, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	log := klog.FromContext(ctx).WithValues("endpoint", one.endpoint, "bytes", one.DbSize, "bytesInUse", one.DbSizeInUse)
	if _, err := m.Etcd.Defragment(within, one.endpoint); err != nil {
		log.Error(err, "Failed to defragment a member of etcd")
		return false
	}
	log.Info("Defragmented a member of etcd")
	return true
}
