// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
)

// recovery is the state of recoverNoSpace.
type recovery struct {
	// compacted is the last revision that was compacted.
	compacted int64
	// next is when the next attempt may begin.
	next time.Time
	// postponed is since when defragmentations wait for members that do not respond; zero if none
	// does.
	postponed time.Time
}

// missingMembersWait is how long a recovery waits for members that do not respond, for example
// because another API server defragments them, before it defragments although etcd loses its quorum
// meanwhile. etcd rejects writes anyway then, and it would not recover before a person repairs it.
const missingMembersWait = 3 * time.Minute

// recoveredSize returns the largest size of a database file at which an etcd with a quota counts as
// recovered.
func recoveredSize(quota int64) int64 { return quota / 8 * 7 }

// recoverNoSpace compacts and defragments an etcd with NOSPACE alarms, and disarms them when no file
// is larger than recoveredSize. Between attempts it pauses like between defragmentations. It
// compacts without compactTo, which begins with a write, because etcd rejects writes while an alarm
// is armed.
func (m *Maintainer) recoverNoSpace(ctx context.Context, alarms []*etcdserverpb.AlarmMember, revision int64) {
	began := m.Clock.Now()
	if began.Before(m.recovery.next) {
		return
	}
	pause := shortestDefragmentPause
	if !m.tryRecover(ctx, alarms, revision) {
		pause = failedDefragmentPause
	}
	now := m.Clock.Now()
	m.recovery.next = now.Add(max(pause, defragmentPause*now.Sub(began)))
}

// tryRecover tries once to recover etcd. It reports whether all its calls succeeded, not whether
// etcd has recovered.
func (m *Maintainer) tryRecover(ctx context.Context, alarms []*etcdserverpb.AlarmMember, revision int64) bool {
	log := klog.FromContext(ctx)
	if err := m.compactAll(ctx, revision); err != nil {
		log.Error(err, "Failed to compact etcd, which is out of space")
		return false
	}
	all := memberStatuses(ctx, m.Etcd)
	if len(all) == 0 {
		return false
	}
	if inUse, quota := all.inUse(), all.quota(); quota > 0 && inUse > recoveredSize(quota) {
		log.Info("Failed to free enough space in etcd, which rejects writes until objects are deleted or its quota is raised", "bytesInUse", inUse, "quota", quota)
		return true
	}
	for _, member := range all {
		// Skip a member that was defragmented since the last compaction: it would not get smaller.
		if member.isSmall() || m.attempts[member.id()].revision >= m.recovery.compacted {
			continue
		}
		if !m.mayDefragmentFull(ctx) || !m.defragmentMember(ctx, member) {
			return false // the alarms stay: the next write would raise them again
		}
	}
	if all = memberStatuses(ctx, m.Etcd); len(all) == 0 || !all.areSmall() {
		return true
	}
	for _, alarm := range alarms {
		if err := disarm(ctx, m.Etcd, alarm); err != nil {
			log.Error(err, "Failed to disarm the NOSPACE alarm of etcd")
			return false
		}
	}
	log.Info("Recovered etcd from NOSPACE", "bytesInUse", all.inUse())
	return true
}

// mayDefragmentFull reports whether a member of an etcd that is out of space may be defragmented.
func (m *Maintainer) mayDefragmentFull(ctx context.Context) bool {
	if canSpareMember(ctx, m.Etcd) {
		m.recovery.postponed = time.Time{}
		return true
	}
	now := m.Clock.Now()
	if m.recovery.postponed.IsZero() {
		m.recovery.postponed = now
	}
	return now.Sub(m.recovery.postponed) >= missingMembersWait
}

// isSmall reports whether the quota is known and the file is not larger than recoveredSize.
func (m *member) isSmall() bool { return m.quota() > 0 && m.DbSize <= recoveredSize(m.quota()) }

// areSmall reports whether no file is known to be larger than recoveredSize. A member without a known
// quota raises its alarm again if it has no space.
func (m memberList) areSmall() bool {
	for _, one := range m {
		if one.quota() > 0 && !one.isSmall() {
			return false
		}
	}
	return true
}

// noSpaceAlarms returns the NOSPACE alarms of etcd. After a restore they can be of a member that no
// longer exists.
func noSpaceAlarms(ctx context.Context, etcd *clientv3.Client) ([]*etcdserverpb.AlarmMember, error) {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := etcd.AlarmList(within)
	if err != nil {
		return nil, err
	}
	var noSpace []*etcdserverpb.AlarmMember
	for _, alarm := range list.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			noSpace = append(noSpace, alarm)
		}
	}
	return noSpace, nil
}

// disarm disarms an alarm.
func disarm(ctx context.Context, etcd *clientv3.Client, alarm *etcdserverpb.AlarmMember) error {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := etcd.AlarmDisarm(within, (*clientv3.AlarmMember)(alarm))
	return err
}

// compactAll compacts the whole history and waits until it is removed from the database. Then it
// repeats that, because etcd counts pages as free only after two more commits.
func (m *Maintainer) compactAll(ctx context.Context, revision int64) error {
	within, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	for range 3 {
		if err := compact(within, m.Etcd, revision); err != nil {
			return err
		}
	}
	m.recovery.compacted = revision
	return nil
}
