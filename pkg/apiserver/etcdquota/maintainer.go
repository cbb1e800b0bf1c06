// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// MaintainerOptions are the options of a Maintainer.
type MaintainerOptions struct {
	Etcd    *clientv3.Client
	Limiter *Limiter
	Clock   clock.WithTicker
	// MaintenanceEnabled lets API servers compact this etcd early, defragment it and disarm its
	// alarms. Without it, etcd is only measured. IsMaintainer reports whether this server does so
	// for all servers.
	MaintenanceEnabled bool
	IsMaintainer       func() bool
	// Embedded means that etcd runs in this process. Disk space is reclaimed then, too.
	Embedded bool
}

// Maintainer measures etcd, and compacts and defragments it when it is nearly full.
type Maintainer struct {
	MaintainerOptions
	// history are the revisions of the last minute, the oldest first. Only measure uses it.
	history []revisionAt

	// The fields below are used by maintain only.
	early    earlyCompaction
	recovery recovery
	// attempts are the last defragmentations by member ID.
	attempts map[uint64]attempt
	// nextReclaim is when disk space may be reclaimed again.
	nextReclaim time.Time
}

// NewMaintainer returns a Maintainer, which does nothing before Run.
func NewMaintainer(o MaintainerOptions) *Maintainer {
	return &Maintainer{MaintainerOptions: o, attempts: map[uint64]attempt{}}
}

// Run measures and maintains etcd until ctx is done. Measuring does not wait for maintenance, which
// can take minutes and gets the newest measurement.
func (m *Maintainer) Run(ctx context.Context) {
	newest := make(chan *etcdState, 1)
	var running sync.WaitGroup
	running.Go(func() { m.measurePeriodically(ctx, newest) })
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case o := <-newest:
				m.maintain(ctx, o)
			}
		}
	})
	running.Wait()
}

// Recover recovers an etcd with NOSPACE alarms if it can, and does nothing else. A server calls it
// before it first writes. It must not be called during Run.
func (m *Maintainer) Recover(ctx context.Context) {
	if o := m.measure(ctx); o != nil && m.recoverIfAlarmed(ctx, o) {
		m.measure(ctx) // or the limiter would reject the first writes
	}
}

// recoverIfAlarmed reports whether etcd has NOSPACE alarms, or it is not known. Then it tries to
// recover etcd.
func (m *Maintainer) recoverIfAlarmed(ctx context.Context, o *etcdState) bool {
	if !o.members.haveErrors() {
		m.recovery.postponed = time.Time{}
		return false
	}
	alarms, err := noSpaceAlarms(ctx, m.Etcd)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list etcd alarms")
		return true
	}
	if len(alarms) == 0 {
		return false
	}
	m.recoverNoSpace(ctx, alarms, o.members.revision())
	return true
}

// maintain compacts, defragments or recovers etcd if necessary.
func (m *Maintainer) maintain(ctx context.Context, o *etcdState) {
	if !m.MaintenanceEnabled || !m.IsMaintainer() || m.recoverIfAlarmed(ctx, o) {
		return
	}
	if used := m.Limiter.etcdUsed(); used >= throttleFrom {
		m.compactEarly(ctx, o, used)
	}
	m.defragment(ctx, o.members)
}
