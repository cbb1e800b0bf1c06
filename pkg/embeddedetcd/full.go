// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/klog/v2"
)

// alarms returns those by which etcd refuses writes because its file has reached the quota. It
// goes on doing so, whatever is deleted, until it is told otherwise. In data that was restored
// they may be of a member that is no more.
func (s *Server) alarms() []*etcdserverpb.AlarmMember {
	var full []*etcdserverpb.AlarmMember
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			full = append(full, alarm)
		}
	}
	return full
}

// makeRoom has etcd take writes again if what is left without old revisions is well below the
// quota. The API server cannot compact any more: it would have to write for that. Nor can
// anyone else reach this etcd.
//
// Watches that are behind lose the revisions between, and list again.
func (s *Server) makeRoom(ctx context.Context, alarms []*etcdserverpb.AlarmMember) {
	server := s.etcd.Server
	log := klog.LoggerWithValues(klog.Background(), "dir", s.etcdDir(), "quota", s.quota)
	if revision := server.KV().Rev(); revision > s.compacted {
		_, err := server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true})
		// It may have been compacted before a restart, and nothing been written since.
		if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
			log.Error(err, "The embedded etcd is full, and compacting it failed")
			return
		}
		s.compacted = revision
	}
	backend := server.Backend()
	backend.ForceCommit() // pages count as free after the next write
	backend.ForceCommit()
	if enough := s.quota / 8 * 7; backend.SizeInUse() > enough {
		log.Info("Warning: the embedded etcd is full and refuses writes. Delete objects, or give it a larger quota", "inUse", backend.SizeInUse())
		return
	}
	if err := s.defragment(); err != nil {
		s.logDefragmentation(err) // the alarm stays: the next write would raise it again
		return
	}
	for _, alarm := range alarms {
		_, err := server.Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm,
		})
		if err != nil {
			log.Error(err, "The embedded etcd has room again, and goes on refusing writes")
			return
		}
	}
	log.Info("The embedded etcd was full, has room again and takes writes", "bytes", backend.Size())
}
