// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// together lets an endpoint answer only when all have been asked.
type together struct {
	clientv3.Maintenance
	endpoint string
	missing  atomic.Int32
	all      chan struct{}
}

func (m *together) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
		return m.Maintenance.Status(ctx, m.endpoint)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestMembersAreAskedAtTheSameTime checks that an endpoint that does not answer does not delay the
// others, and that a member with several endpoints counts once.
func TestMembersAreAskedAtTheSameTime(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	endpoint := m.etcd.Endpoints()[0]
	asked := &together{Maintenance: m.etcd.Maintenance, endpoint: endpoint, all: make(chan struct{})}
	asked.missing.Store(3)
	m.etcd.Maintenance = asked
	m.etcd.SetEndpoints(endpoint, endpoint, endpoint)
	if all := memberStatuses(t.Context(), m.Etcd); len(all) != 1 || all[0].endpoint != endpoint {
		t.Errorf("members: %v", all)
	}
}
