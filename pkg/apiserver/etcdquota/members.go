// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
)

// member is the status of a member of etcd.
type member struct {
	*clientv3.StatusResponse
	endpoint string
}

// id returns the ID of the member.
func (m *member) id() uint64 { return m.Header.MemberId }

// quota returns the maximum size of the member's database file: 0 if etcd does not report it
// (before 3.6), negative if there is none.
func (m *member) quota() int64 { return m.DbSizeQuota }

// isLeader reports whether the member is the leader.
func (m *member) isLeader() bool { return m.Leader == m.id() }

// memberList are the members that respond, the leader last.
type memberList []*member

// requestTimeout is the timeout of status and alarm requests.
const requestTimeout = 5 * time.Second

// endpointStatuses returns the endpoints, and the status of each; nil if it does not respond. It asks
// all concurrently.
func endpointStatuses(ctx context.Context, etcd *clientv3.Client) ([]string, []*clientv3.StatusResponse) {
	endpoints := etcd.Endpoints()
	responses := make([]*clientv3.StatusResponse, len(endpoints))
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			var err error
			if responses[i], err = etcd.Status(within, endpoint); err != nil {
				klog.FromContext(ctx).V(2).Info("Failed to get the status of a member of etcd", "endpoint", endpoint, "err", err)
			}
		})
	}
	wg.Wait()
	return endpoints, responses
}

// memberStatuses returns the status of each member that responds, the leader last.
func memberStatuses(ctx context.Context, etcd *clientv3.Client) memberList {
	endpoints, responses := endpointStatuses(ctx, etcd)
	var all memberList
	for i, status := range responses {
		same := func(other *member) bool { return other.id() == status.Header.MemberId }
		if status != nil && !slices.ContainsFunc(all, same) {
			all = append(all, &member{status, endpoints[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b *member) int {
		switch {
		case a.isLeader() == b.isLeader():
			return 0
		case a.isLeader():
			return 1
		}
		return -1
	})
	return all
}

// fileSize, inUse and revision return the largest value of all members, quota the smallest.
func (m memberList) fileSize() int64 {
	return slices.MaxFunc(m, func(a, b *member) int { return cmp.Compare(a.DbSize, b.DbSize) }).DbSize
}

func (m memberList) inUse() int64 {
	return slices.MaxFunc(m, func(a, b *member) int { return cmp.Compare(a.DbSizeInUse, b.DbSizeInUse) }).DbSizeInUse
}

func (m memberList) quota() int64 {
	return slices.MinFunc(m, func(a, b *member) int { return cmp.Compare(a.quota(), b.quota()) }).quota()
}

func (m memberList) revision() int64 {
	return slices.MaxFunc(m, func(a, b *member) int { return cmp.Compare(a.Header.Revision, b.Header.Revision) }).Header.Revision
}

// haveErrors reports whether a member reports an error, such as an alarm.
func (m memberList) haveErrors() bool {
	return slices.ContainsFunc(m, func(one *member) bool { return len(one.Errors) > 0 })
}
