// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"
)

const (
	// After a defragmentation of a member, the next one has to wait for defragmentPause times
	// its duration, and for shortestDefragmentPause at least, or failedDefragmentPause if it
	// failed.
	defragmentPause         = 4
	shortestDefragmentPause = 10 * time.Second
	failedDefragmentPause   = time.Minute

	// The disk space of an embedded etcd is reclaimed once in reclaimInterval at most, if it is
	// at least minReclaimed bytes.
	reclaimInterval = time.Hour
	minReclaimed    = 256 << 20

	// defragmentTimeout bounds a defragmentation.
	defragmentTimeout = 10 * time.Minute
)

// attempt is the last defragmentation of a member.
type attempt struct {
	// next is when the member may be defragmented again.
	next time.Time
	// revision is the last revision that recoverNoSpace had compacted before; 0 if the
	// defragmentation failed.
	revision int64
}

// worthDefragmenting reports whether the file of a member is near the quota and would become much
// smaller: it is above 75% of the quota and half free, or above 90% with an eighth of the quota
// free. The member is unavailable meanwhile, about a second per 200 MB in use.
func worthDefragmenting(file, inUse, quota int64) bool {
	free := file - inUse
	return quota > 0 && (file > quota/4*3 && free >= inUse || file > quota/10*9 && free >= quota/8)
}

// worthReclaiming reports whether much of a file is free, whatever the quota.
func worthReclaiming(file, inUse int64) bool {
	free := file - inUse
	return free >= inUse && free >= minReclaimed
}

// canSpareMember reports whether etcd keeps a quorum while one member is unavailable: all members
// respond, or more than half of all would still respond without that one, such as 4 of 5, but not 2
// of 3. A member that another API server defragments does not respond. A member that is not among
// the endpoints counts as one that does not respond.
func canSpareMember(ctx context.Context, etcd *clientv3.Client) bool {
	_, statuses := endpointStatuses(ctx, etcd)
	members := max(len(statuses), votingMembers(ctx, etcd))
	responding := 0
	for _, one := range statuses {
		if one != nil {
			responding++
		}
	}
	ok := responding == members || responding-1 > members/2
	if !ok {
		klog.FromContext(ctx).Info("Postponed the defragmentation of etcd because members do not respond", "responding", responding, "members", members)
	}
	return ok
}

// votingMembers returns how many members the quorum of etcd is of; 0 if that is not known.
func votingMembers(ctx context.Context, etcd *clientv3.Client) (n int) {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := etcd.MemberList(within)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to list the members of etcd", "err", err)
		return 0
	}
	for _, one := range list.Members {
		if !one.IsLearner {
			n++
		}
	}
	return n
}

// defragment defragments the first member that needs it. The leader comes last. If that fails, the
// member may be down, so the next one is tried in the next call.
func (m *Maintainer) defragment(ctx context.Context, all memberList) {
	now := m.Clock.Now()
	for _, member := range all {
		worth := worthDefragmenting(member.DbSize, member.DbSizeInUse, member.quota()) ||
			m.Embedded && !now.Before(m.nextReclaim) && worthReclaiming(member.DbSize, member.DbSizeInUse)
		if worth && !now.Before(m.attempts[member.id()].next) {
			if canSpareMember(ctx, m.Etcd) {
				m.defragmentMember(ctx, member)
			}
			return
		}
	}
}

// defragmentMember defragments a member and records the attempt. It reports whether it succeeded.
func (m *Maintainer) defragmentMember(ctx context.Context, one *member) bool {
	within, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	log := klog.FromContext(ctx).WithValues("endpoint", one.endpoint, "bytes", one.DbSize, "bytesInUse", one.DbSizeInUse)
	began := m.Clock.Now()
	_, err := m.Etcd.Defragment(within, one.endpoint)
	now := m.Clock.Now()
	pause, revision := max(shortestDefragmentPause, defragmentPause*now.Sub(began)), m.recovery.compacted
	if err != nil {
		pause, revision = max(pause, failedDefragmentPause), 0
	}
	m.attempts[one.id()] = attempt{next: now.Add(pause), revision: revision}
	if status.Code(err) == codes.Unavailable { // an embedded etcd rejects it while a snapshot is read
		log.Info("Postponed the defragmentation of a member of etcd", "reason", err)
		return false
	}
	m.nextReclaim = now.Add(reclaimInterval)
	if err != nil {
		log.Error(err, "Failed to defragment a member of etcd")
		return false
	}
	log.Info("Defragmented a member of etcd")
	return true
}
