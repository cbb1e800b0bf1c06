// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
)

// recovery is the state of clearNoSpace.
type recovery struct {
	// compacted is the last revision that was compacted, and tried the revision when
	// defragmentation was last tried.
	compacted, tried int64
	triedAt          time.Time
}

// retryDefragmentAfter is how often defragmentation is tried although little space seems free, if
// anything was deleted since the last try: etcd updates its free size only on the next write.
const retryDefragmentAfter = time.Minute

// recoveredSize returns the size of the database below which an etcd with a quota has recovered.
func recoveredSize(quota int64) int64 { return quota / 8 * 7 }

// clearNoSpace compacts and defragments an etcd that has raised NOSPACE, and disarms the alarm once
// its files are below recoveredSize. etcd rejects writes until then, so the usual compaction, which
// begins with a write, cannot help.
func (m *Maintainer) clearNoSpace(ctx context.Context, all members) {
	log := klog.FromContext(ctx)
	alarms, err := m.alarms(ctx)
	if err != nil {
		log.Error(err, "Failed to list etcd alarms")
		return
	}
	if len(alarms) == 0 {
		return
	}
	if err := m.compactAll(ctx, all.revision()); err != nil {
		log.Error(err, "Failed to compact etcd, which is out of space")
		return
	}
	if all = m.members(ctx); len(all) == 0 {
		return
	}
	revision, inUse, quota := all.revision(), all.inUse(), all.quota()
	again := revision > m.recovery.tried && m.Clock.Since(m.recovery.triedAt) >= retryDefragmentAfter
	if quota > 0 && inUse > recoveredSize(quota) && !again {
		log.Info("etcd is out of space and rejects writes; delete objects or raise its quota", "bytesInUse", inUse, "quota", quota)
		return
	}
	m.recovery.tried, m.recovery.triedAt = revision, m.Clock.Now()
	for _, member := range all {
		if !m.defragmentOne(ctx, member) {
			return // the alarm stays: the next write would raise it again
		}
	}
	if all = m.members(ctx); len(all) == 0 || !all.haveRoom() {
		return
	}
	for _, alarm := range alarms {
		if _, err := m.Etcd.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			log.Error(err, "Failed to disarm the NOSPACE alarm of etcd")
			return
		}
	}
	log.Info("Recovered etcd from NOSPACE", "bytesInUse", all.inUse())
}

// haveRoom reports whether the files of all members with a known quota are below recoveredSize.
// Another member raises its alarm again if it has no space.
func (m members) haveRoom() bool {
	for _, one := range m {
		if quota := one.quota(); quota > 0 && one.DbSize > recoveredSize(quota) {
			return false
		}
	}
	return true
}

// alarms returns the NOSPACE alarms of etcd.
func (m *Maintainer) alarms(ctx context.Context) ([]*etcdserverpb.AlarmMember, error) {
	within, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	list, err := m.Etcd.AlarmList(within)
	if err != nil {
		return nil, err
	}
	var full []*etcdserverpb.AlarmMember
	for _, alarm := range list.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			full = append(full, alarm)
		}
	}
	return full, nil
}

// compactAll compacts the whole history and waits until it is removed from the database.
func (m *Maintainer) compactAll(ctx context.Context, revision int64) error {
	if revision <= m.recovery.compacted {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	_, err := m.Etcd.Compact(within, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	m.recovery.compacted = revision
	return nil
}
