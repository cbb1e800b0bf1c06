// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"slices"
	"time"

	"github.com/sandlot-io/sandlot/pkg/memory"
)

// measureInterval is how often etcd is measured below throttleFrom, and nearQuotaInterval from there
// on. What this server has written since the last measurement counts.
const measureInterval, nearQuotaInterval = 5 * time.Second, time.Second

// etcdState is the status of the members and the revisions of the last minute, oldest first.
type etcdState struct {
	members memberList
	history []revisionAt
}

type revisionAt struct {
	at       time.Time
	revision int64
}

// revisionBefore returns the newest revision that is known to be at least as old as a time; 0 if
// there is none.
func (o *etcdState) revisionBefore(t time.Time) int64 {
	var found int64
	for _, r := range o.history {
		if !r.at.After(t) {
			found = r.revision
		}
	}
	return found
}

// measurePeriodically measures etcd until ctx is done, and puts the newest state into a
// channel with a capacity of 1, to which only it sends.
func (m *Maintainer) measurePeriodically(ctx context.Context, newest chan *etcdState) {
	ticker := m.Clock.NewTicker(nearQuotaInterval)
	defer ticker.Stop()
	var last time.Time
	for {
		m.Limiter.SetMemoryUsed(memory.LiveShare())
		if m.Limiter.etcdUsed() >= throttleFrom || m.Clock.Since(last) >= measureInterval {
			last = m.Clock.Now()
			if o := m.measure(ctx); o != nil {
				select {
				case <-newest: // replace it
				default:
				}
				newest <- o
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// measure measures etcd once. It returns nil if no member responds.
func (m *Maintainer) measure(ctx context.Context) *etcdState {
	written := m.Limiter.Written()
	all := memberStatuses(ctx, m.Etcd)
	if len(all) == 0 {
		return nil
	}
	m.Limiter.SetUsage(Usage{File: all.fileSize(), InUse: all.inUse(), Quota: all.quota(), WrittenBefore: written, AutoDefragmented: m.MaintenanceEnabled})
	usedRatio.Set(m.Limiter.etcdUsed())
	now := m.Clock.Now()
	m.history = append(m.history, revisionAt{now, all.revision()})
	for len(m.history) > 1 && now.Sub(m.history[0].at) > time.Minute {
		m.history = m.history[1:]
	}
	return &etcdState{members: all, history: slices.Clone(m.history)}
}
