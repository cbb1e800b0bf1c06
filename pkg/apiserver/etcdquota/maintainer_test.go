// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	clocktesting "k8s.io/utils/clock/testing"
)

// maintained is an etcd with a quota of 32 MiB and its Maintainer.
type maintained struct {
	*Maintainer
	etcd  *clientv3.Client
	clock *clocktesting.FakeClock
	// isMaintainer is what the Maintainer's IsMaintainer returns.
	isMaintainer bool
	// files is the folder with the database file.
	files string
}

// Sync measures and maintains etcd once. As Run does it again and again.
func (m *Maintainer) Sync(ctx context.Context) {
	if o := m.measure(ctx); o != nil {
		m.maintain(ctx, o)
	}
}

func startMaintained(t *testing.T) *maintained {
	t.Helper()
	config := testserver.NewTestConfig(t)
	config.QuotaBackendBytes = 32 * mebibyte
	m := maintain(testserver.RunEtcd(t, config).Client)
	m.files = filepath.Join(config.Dir, "member", "snap")
	return m
}

// maintain returns an etcd with a new Maintainer.
func maintain(etcd *clientv3.Client) *maintained {
	m := &maintained{etcd: etcd, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), isMaintainer: true}
	m.Maintainer = NewMaintainer(MaintainerOptions{
		Etcd: m.etcd, Limiter: NewLimiter(Limits{}, m.clock), Clock: m.clock,
		MaintenanceEnabled: true, IsMaintainer: func() bool { return m.isMaintainer },
	})
	return m
}

func (m *maintained) put(ctx context.Context, key string) error {
	_, err := m.etcd.KV.Put(ctx, key, strings.Repeat("x", mebibyte/16))
	return err
}

// write writes history until n MiB of etcd count as used. The size of the file depends on how often
// etcd commits, which depends on the speed of the machine.
func (m *maintained) write(t *testing.T, n int) {
	t.Helper()
	for {
		m.commit(t)
		if all := memberStatuses(t.Context(), m.Etcd); all.fileSize()+all.inUse() >= 2*int64(n)*mebibyte {
			return
		}
		for range 8 {
			if err := m.put(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// commit makes etcd report the sizes after the last write. A snapshot begins with a commit.
func (m *maintained) commit(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // an open snapshot keeps pages from being freed
	snapshot, err := m.etcd.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Close(); err != nil {
		t.Fatal(err)
	}
}

// fill writes to the keys that key returns until etcd is full, and returns the number of writes.
func (m *maintained) fill(t *testing.T, key func(int) string) int {
	t.Helper()
	for i := range 16 * 128 {
		err := m.put(t.Context(), key(i))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			waitFor(t, func() bool { // etcd raises the alarm after its answer
				alarms, err := m.etcd.AlarmList(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return len(alarms.Alarms) > 0
			})
			return i
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("128 MiB went into 32 MiB")
	return 0
}

func oneKey(int) string   { return "key" }
func ownKey(i int) string { return fmt.Sprintf("key-%04d", i) }

// full reports whether etcd rejects writes.
func (m *maintained) full(t *testing.T) bool {
	t.Helper()
	err := m.put(t.Context(), "another")
	if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	return err != nil
}

// TestRecoversFromHistory checks that the maintainer, and no other server, recovers an etcd that is
// full of history.
func TestRecoversFromHistory(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.fill(t, oneKey)
	for name, enabled := range map[string]*bool{"not the maintainer": &m.isMaintainer, "maintenance disabled": &m.MaintenanceEnabled} {
		*enabled = false
		if m.Sync(t.Context()); !m.full(t) {
			t.Fatalf("%s: etcd was recovered anyway", name)
		}
		*enabled = true
	}
	if m.Sync(t.Context()); m.full(t) {
		t.Error("it is still full")
	}
	if used := m.Limiter.pressure().used; used < rejectFrom {
		t.Errorf("%v of the quota is used according to the measurement before", used)
	}
	if m.Sync(t.Context()); m.full(t) {
		t.Error("it is full again")
	}
	if used := m.Limiter.pressure().used; used > 0.2 {
		t.Errorf("%v of the quota is used", used)
	}
}

// TestRecoversAfterDeletes checks that an etcd that is full of objects stays full until objects are
// deleted.
func TestRecoversAfterDeletes(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	// At first, some of the file may be free space between the objects.
	n := 0
	for full := 0; full < 3; m.clock.Step(shortestDefragmentPause) {
		if m.Sync(t.Context()); m.full(t) {
			full++
			continue
		}
		if full > 0 {
			t.Fatal("it accepts writes, but nothing was deleted")
		}
		n += m.fill(t, func(i int) string { return ownKey(n + i) })
	}
	// The last write may have been stored although it was rejected.
	if _, err := m.etcd.Delete(t.Context(), ownKey(1), clientv3.WithRange(ownKey(n+1))); err != nil {
		t.Fatal(err)
	}
	if m.Sync(t.Context()); m.full(t) {
		t.Error("it is still full")
	}
	left, err := m.etcd.KV.Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(left.Kvs) != 1 || string(left.Kvs[0].Key) != ownKey(0) {
		t.Errorf("reading the one object that was not deleted: %v, %v", left, err)
	}
}

// waitFor waits until a condition holds, and gives up after a minute.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("condition not met within a minute")
		}
	}
}
