// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"cmp"
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
)

// member is the status of a member of etcd.
type member struct {
	*clientv3.StatusResponse
	endpoint string
}

// quota is how many bytes the file of the member may have. An etcd before 3.6 does not say;
// then it is 0, and if it has none, negative.
func (m *member) quota() int64 { return m.DbSizeQuota }

// leads reports whether the member is the leader.
func (m *member) leads() bool { return m.Leader == m.Header.MemberId }

// members are those that answer, the leader last.
type members []*member

// members asks each endpoint for its status.
func (k *Keeper) members(ctx context.Context) members {
	var all members
	for _, endpoint := range k.Etcd.Endpoints() {
		within, cancel := context.WithTimeout(ctx, statusTimeout)
		status, err := k.Etcd.Status(within, endpoint)
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Failed to get the status of a member of etcd", "endpoint", endpoint, "err", err)
			continue
		}
		same := func(other *member) bool { return other.Header.MemberId == status.Header.MemberId }
		if !slices.ContainsFunc(all, same) {
			all = append(all, &member{status, endpoint})
		}
	}
	slices.SortStableFunc(all, func(a, b *member) int {
		switch {
		case a.leads() == b.leads():
			return 0
		case a.leads():
			return 1
		}
		return -1
	})
	return all
}

// file, inUse and revision return the largest value of all members, quota the smallest.
func (m members) file() int64 {
	return slices.MaxFunc(m, func(a, b *member) int { return cmp.Compare(a.DbSize, b.DbSize) }).DbSize
}

func (m members) inUse() int64 {
	return slices.MaxFunc(m, func(a, b *member) int { return cmp.Compare(a.DbSizeInUse, b.DbSizeInUse) }).DbSizeInUse
}

func (m members) quota() int64 {
	return slices.MinFunc(m, func(a, b *member) int { return cmp.Compare(a.quota(), b.quota()) }).quota()
}

func (m members) revision() int64 {
	return slices.MaxFunc(m, func(a, b *member) int { return cmp.Compare(a.Header.Revision, b.Header.Revision) }).Header.Revision
}

// alarmed reports whether a member says that something is wrong with it, such as an alarm.
func (m members) alarmed() bool {
	return slices.ContainsFunc(m, func(one *member) bool { return len(one.Errors) > 0 })
}
