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

// healing is what was done for an etcd that is full.
type healing struct {
	// compacted is the last revision that was compacted, and tried that at which the members
	// were last defragmented.
	compacted, tried int64
	triedAt          time.Time
}

// tryAnyway is how often a full etcd is defragmented that has written since, although too
// little of it seems to be free: etcd counts what a compaction has freed only when it writes
// again.
const tryAnyway = time.Minute

// enough is how much of a quota may be in use for etcd to take writes again.
func enough(quota int64) int64 { return quota / 8 * 7 }

// heal has an etcd take writes again that has refused them because its file had reached the
// quota, if what is left without history is well below the quota. Until then, it goes on
// refusing them, whatever is deleted. The compaction of Kubernetes does not help any more: it
// would have to write for that.
func (k *Keeper) heal(ctx context.Context, m members) {
	log := klog.FromContext(ctx)
	alarms, err := k.alarms(ctx)
	if err != nil {
		log.Error(err, "Failed to ask etcd for its alarms")
		return
	}
	if len(alarms) == 0 {
		return
	}
	if err := k.compactAll(ctx, m.revision()); err != nil {
		log.Error(err, "etcd is full, and compacting it failed")
		return
	}
	if m = k.members(ctx); len(m) == 0 {
		return
	}
	revision, inUse, quota := m.revision(), m.inUse(), m.quota()
	again := revision > k.healing.tried && k.Clock.Since(k.healing.triedAt) >= tryAnyway
	if quota > 0 && inUse > enough(quota) && !again {
		log.Info("Warning: etcd is full and refuses writes. Delete objects, or give it a larger quota", "bytesInUse", inUse, "quota", quota)
		return
	}
	k.healing.tried, k.healing.triedAt = revision, k.Clock.Now()
	for _, member := range m {
		if !k.defragmentOne(ctx, member) {
			return // the alarm stays: the next write would raise it again
		}
	}
	if m = k.members(ctx); len(m) == 0 || !m.haveRoom() {
		return
	}
	for _, alarm := range alarms {
		if _, err := k.Etcd.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			log.Error(err, "etcd has room again, and goes on refusing writes")
			return
		}
	}
	log.Info("etcd was full, has room again and takes writes", "bytesInUse", m.inUse())
}

// haveRoom reports whether the files of all members are well below their quotas. Of a member
// that does not say its quota it is not known; it raises its alarm again.
func (m members) haveRoom() bool {
	for _, one := range m {
		if quota := one.quota(); quota > 0 && one.DbSize > enough(quota) {
			return false
		}
	}
	return true
}

// alarms returns those by which etcd refuses writes.
func (k *Keeper) alarms(ctx context.Context) ([]*etcdserverpb.AlarmMember, error) {
	within, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	list, err := k.Etcd.AlarmList(within)
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

// compactAll compacts the whole history, and waits until that is done.
func (k *Keeper) compactAll(ctx context.Context, revision int64) error {
	if revision <= k.healing.compacted {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	_, err := k.Etcd.Compact(within, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	k.healing.compacted = revision
	return nil
}
