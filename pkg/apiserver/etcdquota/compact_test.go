// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pauseDefragmentation prevents defragmentations for an hour.
func (m *maintained) pauseDefragmentation(t *testing.T) {
	t.Helper()
	for _, one := range memberStatuses(t.Context(), m.Etcd) {
		m.attempts[one.id()] = attempt{next: m.clock.Now().Add(time.Hour)}
	}
}

// TestCompactsEarly checks that old history is compacted early when etcd is nearly full, that
// compact_rev_key has the revision, and that younger history is kept.
func TestCompactsEarly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mebibytes int
		after     time.Duration
		want      bool
	}{
		"enough space":                      {10, time.Minute, false},
		"young history":                     {22, 9 * time.Second, false},
		"old history":                       {22, 10 * time.Second, true},
		"younger history, hardly any space": {27, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMaintained(t)
			m.write(t, tc.mebibytes)
			m.pauseDefragmentation(t) // it would free space as well
			m.Sync(t.Context())
			seen := m.history[0].revision
			if err := m.put(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			m.clock.Step(tc.after)
			m.Sync(t.Context())
			_, err := m.etcd.KV.Get(t.Context(), "key", clientv3.WithRev(seen-1))
			if compacted := errors.Is(err, rpctypes.ErrCompacted); compacted != tc.want || err != nil && !compacted {
				t.Errorf("reading older history: %v", err)
			}
			if _, err := m.etcd.KV.Get(t.Context(), "key", clientv3.WithRev(seen)); err != nil {
				t.Errorf("reading younger history: %v", err)
			}
			key, err := m.etcd.KV.Get(t.Context(), "compact_rev_key")
			if err != nil || len(key.Kvs) > 0 != tc.want || tc.want && string(key.Kvs[0].Value) != fmt.Sprint(seen) {
				t.Errorf("compact_rev_key is %v, %v, want %d", key.Kvs, err, seen)
			}
		})
	}
}

// TestCompactsAfterOthers checks that the Maintainer compacts although another program has changed
// compact_rev_key.
func TestCompactsAfterOthers(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.pauseDefragmentation(t)
	for range 5 {
		if _, err := m.etcd.KV.Put(t.Context(), "compact_rev_key", "1"); err != nil {
			t.Fatal(err)
		}
	}
	m.write(t, 21)
	m.Sync(t.Context())
	m.clock.Step(keptHistory)
	m.Sync(t.Context())
	if _, err := m.etcd.KV.Get(t.Context(), "key", clientv3.WithRev(10)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading old history: %v", err)
	}
}

// slowKV makes compactions take a while, by the clock of the test, and counts them.
type slowKV struct {
	clientv3.KV
	m           *maintained
	takes       time.Duration
	compactions int
}

func (kv *slowKV) Compact(ctx context.Context, revision int64, options ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	kv.compactions++
	kv.m.clock.Step(kv.takes)
	return kv.KV.Compact(ctx, revision, options...)
}

// TestPauseBetweenCompactions checks that slow compactions do not follow one another without a
// pause, and that there are none while nothing is written.
func TestPauseBetweenCompactions(t *testing.T) {
	t.Parallel()
	m := startMaintained(t)
	m.write(t, 21)
	m.pauseDefragmentation(t)
	kv := &slowKV{KV: m.etcd.KV, m: m, takes: 5 * time.Second}
	m.etcd.KV = kv
	// sync maintains etcd once a second, at a use of 70%, and returns the number of compactions.
	sync := func(seconds int, writes bool) int {
		before := kv.compactions
		for range seconds {
			if writes {
				if _, err := kv.KV.Put(t.Context(), "small", ""); err != nil {
					t.Fatal(err)
				}
			}
			o := m.measure(t.Context())
			m.Limiter.SetUsage(Usage{File: 70, InUse: 70, Quota: 100})
			m.maintain(t.Context(), o)
			m.clock.Step(time.Second)
		}
		return kv.compactions - before
	}
	if n := sync(60, true); n < 3 || n > 6 {
		t.Errorf("there were %d compactions of 5 s in about 90 s, want one in 15 s", n)
	}
	kv.takes = 0
	if sync(60, false); sync(60, false) != 0 {
		t.Error("history is compacted although nothing is written")
	}
	if n := sync(60, true); n < 30 {
		t.Errorf("there were %d compactions in 60 s that took no time", n)
	}
}
