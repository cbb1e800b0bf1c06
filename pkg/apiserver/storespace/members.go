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

// quota returns the maximum size of the member's database file: 0 if etcd does not report it
// (before 3.6), negative if there is none.
func (m *member) quota() int64 { return m.DbSizeQuota }

// leads reports whether the member is the leader.
func (m *member) leads() bool { return m.Leader == m.Header.MemberId }

// members are the members that respond, the leader last.
type members []*member

// members returns the status of each member that responds.
func (m *Maintainer) members(ctx context.Context) members {
	var all members
	for _, endpoint := range m.Etcd.Endpoints() {
		within, cancel := context.WithTimeout(ctx, statusTimeout)
		status, err := m.Etcd.Status(within, endpoint)
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

// alarmed reports whether a member reports an error, such as an alarm.
func (m members) alarmed() bool {
	return slices.ContainsFunc(m, func(one *member) bool { return len(one.Errors) > 0 })
}
