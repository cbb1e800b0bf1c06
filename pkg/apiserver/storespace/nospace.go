// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
)

// recovery is the state of clearNoSpace.
type recovery struct {
	// compacted is the last revision that was compacted.
	compacted int64
	// next is when the next attempt may begin.
	next time.Time
}

// recoveredSize returns the size of the database below which an etcd with a quota has recovered.
func recoveredSize(quota int64) int64 { return quota / 8 * 7 }

// clearNoSpace compacts and defragments an etcd that has raised NOSPACE, and disarms the alarms
// once its files are below recoveredSize. The pause until the next attempt is that between
// defragmentations. etcd rejects writes until the alarms are disarmed, so the usual compaction,
// which begins with a write, cannot help.
func (m *Maintainer) clearNoSpace(ctx context.Context, alarms []*etcdserverpb.AlarmMember, revision int64) {
	began := m.Clock.Now()
	if began.Before(m.recovery.next) {
		return
	}
	pause := shortestDefragmentPause
	if !m.makeSpace(ctx, alarms, revision) {
		pause = failedDefragmentPause
	}
	now := m.Clock.Now()
	m.recovery.next = now.Add(max(pause, defragmentPause*now.Sub(began)))
}

// makeSpace returns false if something failed.
func (m *Maintainer) makeSpace(ctx context.Context, alarms []*etcdserverpb.AlarmMember, revision int64) bool {
	log := klog.FromContext(ctx)
	if err := m.compactAll(ctx, revision); err != nil {
		log.Error(err, "Failed to compact etcd, which is out of space")
		return false
	}
	all := m.members(ctx)
	if len(all) == 0 {
		return false
	}
	if inUse, quota := all.inUse(), all.quota(); quota > 0 && inUse > recoveredSize(quota) {
		log.Info("etcd is out of space and rejects writes; delete objects or raise its quota", "bytesInUse", inUse, "quota", quota)
		return true
	}
	defragmented := true
	for _, member := range all {
		// After a defragmentation that freed too little, another one needs a compaction.
		if !member.hasRoom() && m.attempts[member.id()].revision < m.recovery.compacted {
			defragmented = m.defragmentOne(ctx, member) && defragmented
		}
	}
	if !defragmented {
		return false // the alarms stay: the next write would raise them again
	}
	if all = m.members(ctx); len(all) == 0 || !all.haveRoom() {
		return true
	}
	for _, alarm := range alarms {
		if err := m.disarm(ctx, alarm); err != nil {
			log.Error(err, "Failed to disarm the NOSPACE alarm of etcd")
			return false
		}
	}
	log.Info("Recovered etcd from NOSPACE", "bytesInUse", all.inUse())
	return true
}

// hasRoom reports whether the file of the member is known to be below recoveredSize.
func (m *member) hasRoom() bool { return m.quota() > 0 && m.DbSize <= recoveredSize(m.quota()) }

// haveRoom reports whether no file is known to be above recoveredSize. A member without a known
// quota raises its alarm again if it has no space.
func (m members) haveRoom() bool {
	for _, one := range m {
		if one.quota() > 0 && !one.hasRoom() {
			return false
		}
	}
	return true
}

// alarms returns the NOSPACE alarms of etcd. After a restore they can be of a member that no longer
// exists.
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

// disarm disarms an alarm.
func (m *Maintainer) disarm(ctx context.Context, alarm *etcdserverpb.AlarmMember) error {
	within, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, err := m.Etcd.AlarmDisarm(within, (*clientv3.AlarmMember)(alarm))
	return err
}

// compactAll compacts the whole history and waits until it is removed from the database. Then it
// repeats that, because etcd counts pages as free only after two more commits.
func (m *Maintainer) compactAll(ctx context.Context, revision int64) error {
	within, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	for range 3 {
		if err := m.compact(within, revision); err != nil {
			return err
		}
	}
	m.recovery.compacted = revision
	return nil
}
