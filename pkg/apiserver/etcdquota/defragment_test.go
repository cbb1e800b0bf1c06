// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestDefragmentsNearTheQuota checks that a file near the quota that is mostly free is
// defragmented.
func TestDefragmentsNearTheQuota(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.write(t, 26)
	now := memberStatuses(t.Context(), m.Etcd)
	if _, err := m.etcd.Compact(t.Context(), now.revision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		if _, err := m.etcd.KV.Put(t.Context(), "another", ""); err != nil { // etcd updates its free size only on a write
			t.Fatal(err)
		}
		m.Sync(t.Context())
		m.clock.Step(shortestDefragmentPause)
		return memberStatuses(t.Context(), m.Etcd)[0].DbSize < 8*mebibyte
	})
	if m.full(t) {
		t.Error("it is full")
	}
}

// tappedMaintenance stands between a Maintainer and its etcd.
type tappedMaintenance struct {
	clientv3.Maintenance
	// onDefragment is called before a defragmentation, which fails with its error. onStatus may
	// change a response.
	onDefragment func(endpoint string) error
	onStatus     func(*clientv3.StatusResponse)
	// defragmented is the number of defragmentations that were tried, and asked that of
	// responses.
	defragmented, asked atomic.Int32
}

// tap puts a tappedMaintenance between the Maintainer and its etcd.
func (m *maintained) tap() *tappedMaintenance {
	tapped := &tappedMaintenance{
		Maintenance: m.etcd.Maintenance, onDefragment: func(string) error { return nil }, onStatus: func(*clientv3.StatusResponse) {},
	}
	m.etcd.Maintenance = tapped
	return tapped
}

func (t *tappedMaintenance) Defragment(ctx context.Context, endpoint string) (*clientv3.DefragmentResponse, error) {
	t.defragmented.Add(1)
	if err := t.onDefragment(endpoint); err != nil {
		return nil, err
	}
	return t.Maintenance.Defragment(ctx, endpoint)
}

func (t *tappedMaintenance) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	response, err := t.Maintenance.Status(ctx, endpoint)
	if err == nil {
		t.onStatus(response)
		t.asked.Add(1)
	}
	return response, err
}

// sized returns a member of etcd with a file of some MiB, of which 100 MiB are in use, and a quota of 8 GiB.
func (m *maintained) sized(id uint64, endpoint string, file int64) *member {
	return &member{&clientv3.StatusResponse{
		Header: &etcdserverpb.ResponseHeader{MemberId: id}, DbSize: file * mebibyte, DbSizeInUse: 100 * mebibyte, DbSizeQuota: 8192 * mebibyte,
	}, endpoint}
}

// TestDefragmentsNextMember checks that a member that cannot be defragmented does not prevent the
// defragmentation of the next one, which is tried later, and is tried again after a minute.
func TestDefragmentsNextMember(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	tapped := m.tap()
	var tried []string
	tapped.onDefragment = func(endpoint string) error {
		if tried = append(tried, endpoint); endpoint == "broken" {
			return errors.New("no space left on device")
		}
		return nil
	}
	all := memberList{m.sized(1, "broken", 7000), m.sized(2, m.etcd.Endpoints()[0], 7000)}
	steps := []struct {
		after time.Duration
		want  string
	}{{0, "broken"}, {0, "good"}, {0, ""}, {shortestDefragmentPause, "good"}, {50 * time.Second, "broken"}, {0, "good"}}
	for i, step := range steps {
		tried = nil
		m.clock.Step(step.after)
		m.defragment(t.Context(), all)
		if got := strings.ReplaceAll(strings.Join(tried, ","), m.etcd.Endpoints()[0], "good"); got != step.want {
			t.Errorf("step %d: tried to defragment %q, want %q", i, got, step.want)
		}
	}
}

// TestKeepsQuorum checks that no member is defragmented if etcd would lose its quorum, because others
// do not respond.
func TestKeepsQuorum(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		endpoints, away, members int
		want                     bool
	}{
		{1, 0, 1, true}, {2, 0, 2, true}, {2, 1, 2, false}, {3, 0, 3, true}, {3, 1, 3, false}, {5, 1, 5, true}, {5, 2, 5, false},
		{1, 0, 3, false},                  // one name for all members
		{3, 0, 0, true}, {3, 1, 0, false}, // the members cannot be listed
	} {
		m := startMaintained(t)
		good := m.etcd.Endpoints()[0]
		tapped := m.tap()
		var endpoints []string
		for i := range tc.endpoints {
			endpoints = append(endpoints, good)
			if i < tc.away {
				endpoints[i] = "http://127.0.0.1:1"
			}
		}
		m.etcd.SetEndpoints(endpoints...)
		m.etcd.Cluster = tappedCluster{m.etcd.Cluster, tc.members}
		m.defragment(t.Context(), memberList{m.sized(1, good, 7000)})
		if got := tapped.defragmented.Load() == 1; got != tc.want {
			t.Errorf("%+v: defragmented: %t", tc, got)
		}
	}
}

// tappedCluster adds members to those of an etcd; with 0 members it fails.
type tappedCluster struct {
	clientv3.Cluster
	members int
}

func (t tappedCluster) MemberList(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	list, err := t.Cluster.MemberList(ctx, opts...)
	if err != nil {
		return nil, err
	}
	if t.members == 0 {
		return nil, errors.New("not allowed")
	}
	list.Members = append(list.Members, &etcdserverpb.Member{IsLearner: true})
	for range t.members - 1 {
		list.Members = append(list.Members, &etcdserverpb.Member{})
	}
	return list, nil
}

// TestRecoversWithoutQuorum checks that an etcd that is out of space is defragmented although a
// member does not respond, after a time in which another API server may have defragmented that one.
func TestRecoversWithoutQuorum(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.etcd.SetEndpoints(m.etcd.Endpoints()[0], "http://127.0.0.1:1")
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {missingMembersWait - 1, false}, {1, true}} {
		m.clock.Step(step.after)
		if got := m.mayDefragmentFull(t.Context()); got != step.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
	if m.Sync(t.Context()); m.mayDefragmentFull(t.Context()) {
		t.Error("the wait did not begin anew after etcd had recovered")
	}
}

// TestReclaimsDiskSpace checks that the disk space of an embedded etcd is reclaimed once an hour,
// or a minute after it could not be because a snapshot was read.
func TestReclaimsDiskSpace(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	tapped := m.tap()
	all := memberList{m.sized(1, m.etcd.Endpoints()[0], 600)}
	steps := []struct {
		after    time.Duration
		embedded bool
		fails    error
		want     int32
	}{
		{0, false, nil, 0},
		{0, true, status.Error(codes.Unavailable, "a snapshot is being read"), 1},
		{time.Minute, true, nil, 1},
		{59 * time.Minute, true, nil, 0},
		{time.Minute, true, errors.New("no space left on device"), 1},
		{time.Minute, true, nil, 0},
		{time.Hour, true, nil, 1},
	}
	for i, step := range steps {
		m.clock.Step(step.after)
		m.Embedded = step.embedded
		tapped.onDefragment = func(string) error { return step.fails }
		tapped.defragmented.Store(0)
		if m.defragment(t.Context(), all); tapped.defragmented.Load() != step.want {
			t.Errorf("step %d: %d defragmentations, want %d", i, tapped.defragmented.Load(), step.want)
		}
	}
}

// TestFailedDefragmentation checks that an etcd that is full rejects writes until its file is
// smaller, and that a failed defragmentation is retried after a minute. To make it fail, the test
// renames the folder of the database file.
func TestFailedDefragmentation(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.fill(t, oneKey)
	if err := os.Rename(m.files, m.files+".away"); err != nil {
		t.Fatal(err)
	}
	m.Sync(t.Context())
	if err := os.Rename(m.files+".away", m.files); err != nil {
		t.Fatal(err)
	}
	if !m.full(t) {
		t.Error("it accepts writes, but its file is as large as before")
	}
	m.clock.Step(failedDefragmentPause - time.Second)
	if m.Sync(t.Context()); !m.full(t) {
		t.Error("it was defragmented again at once")
	}
	m.clock.Step(time.Second)
	if m.Sync(t.Context()); m.full(t) {
		t.Error("it was not defragmented again after a minute")
	}
}

// TestPauseBetweenRecoveries checks that an etcd that does not report its quota, and is full of
// objects, is defragmented only from time to time.
func TestPauseBetweenRecoveries(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	tapped := m.tap()
	tapped.onStatus = func(s *clientv3.StatusResponse) { s.DbSizeQuota = 0 }
	n := m.fill(t, ownKey)
	for i, step := range []struct{ after, takes time.Duration }{{0, 0}, {shortestDefragmentPause, 20 * time.Second}, {80 * time.Second, 0}} {
		if step.after > 0 {
			m.clock.Step(step.after - time.Second)
			if m.Sync(t.Context()); tapped.defragmented.Load() > 0 {
				t.Errorf("step %d: it was defragmented too early", i)
			}
			m.clock.Step(time.Second)
		}
		tapped.onDefragment = func(string) error { m.clock.Step(step.takes); return nil }
		if m.Sync(t.Context()); tapped.defragmented.Load() != 1 {
			t.Errorf("step %d: %d defragmentations, want 1", i, tapped.defragmented.Load())
		}
		n += m.fill(t, func(i int) string { return ownKey(n + i) })      // there may have been free space between the objects
		if _, err := m.etcd.Delete(t.Context(), ownKey(i)); err != nil { // without a change, there is nothing to free
			t.Fatal(err)
		}
		tapped.defragmented.Store(0)
	}
}

// TestMeasuresDuringDefragmentation checks that etcd is measured while a member is defragmented,
// and that Run waits for the defragmentation.
func TestMeasuresDuringDefragmentation(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.fill(t, oneKey)
	tapped := m.tap()
	began, end, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	tapped.onDefragment = func(string) error { close(began); <-end; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(returned)
		m.Run(ctx)
	}()
	<-began
	for asked := tapped.asked.Load(); tapped.asked.Load() < asked+3; time.Sleep(time.Millisecond) {
		m.clock.Step(time.Second)
	}
	cancel()
	select {
	case <-returned:
		t.Error("Run returned during a defragmentation")
	default:
	}
	close(end)
	<-returned
}
