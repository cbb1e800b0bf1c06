// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	clocktesting "k8s.io/utils/clock/testing"
)

// keeping is a Keeper of an etcd with a quota of 32 MiB.
type keeping struct {
	*Keeper
	etcd  *kubernetes.Client
	clock *clocktesting.FakeClock
	// owns says whether the Keeper is that of the server that makes room.
	owns bool
}

func startKeeping(t *testing.T) *keeping {
	t.Helper()
	config := testserver.NewTestConfig(t)
	config.QuotaBackendBytes = 32 * mebibyte
	k := &keeping{etcd: testserver.RunEtcd(t, config), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), owns: true}
	k.Keeper = NewKeeper(KeeperOptions{
		Etcd: k.etcd.Client, Space: New(Limits{}, k.clock), Clock: k.clock,
		Owner: func() bool { return k.owns }, Compact: true, Defragment: true,
	})
	return k
}

func (k *keeping) put(ctx context.Context, key string) error {
	_, err := k.etcd.KV.Put(ctx, key, strings.Repeat("x", mebibyte/16))
	return err
}

// write writes history until n MiB of etcd count as used. How large its file is for that depends
// on how often it commits, so on how fast the machine is.
func (k *keeping) write(t *testing.T, n int) {
	t.Helper()
	for {
		k.commit(t)
		if m := k.members(t.Context()); m[0].DbSize+m.inUse() >= 2*int64(n)*mebibyte {
			return
		}
		for range 8 {
			if err := k.put(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// commit makes the sizes that etcd reports those of all that was written: a snapshot begins with a
// commit.
func (k *keeping) commit(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // or etcd keeps what is freed meanwhile
	snapshot, err := k.etcd.Snapshot(ctx)
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

// fill writes to the keys that key returns until etcd is full, and returns how many writes it took.
func (k *keeping) fill(t *testing.T, key func(int) string) int {
	t.Helper()
	for i := range 16 * 128 {
		err := k.put(t.Context(), key(i))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return i
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("128 MiB went into 32 MiB")
	return 0
}

func oneKey(int) string    { return "key" }
func ownKey(i int) string  { return fmt.Sprintf("key-%04d", i) }
func (k *keeping) settle() { k.clock.Step(tryAnyway) }
func (k *keeping) full(t *testing.T) bool {
	t.Helper()
	err := k.put(t.Context(), "another")
	if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	return err != nil
}

// An etcd that is full of history takes writes again, by the one server that makes room.
func TestHealsWhatIsFullOfHistory(t *testing.T) {
	t.Parallel()
	k := startKeeping(t)
	k.fill(t, oneKey)
	for name, unwilling := range map[string]*bool{"another server makes room": &k.owns, "another program compacts": &k.Compact, "etcd does it": &k.Defragment} {
		*unwilling = false
		if k.Look(t.Context()); !k.full(t) {
			t.Fatalf("%s, and this one did", name)
		}
		*unwilling = true
	}
	if k.Look(t.Context()); k.full(t) {
		t.Error("it is still full")
	}
	if used := k.Space.pressure().used; used < fullFrom {
		t.Errorf("what was measured before says that %v are used", used)
	}
	if k.Look(t.Context()); k.full(t) {
		t.Error("it is full again")
	}
	if used := k.Space.pressure().used; used > 0.2 {
		t.Errorf("%v are used", used)
	}
}

// An etcd that is full of objects stays full until objects are deleted.
func TestHealsAfterDeletes(t *testing.T) {
	t.Parallel()
	k := startKeeping(t)
	// At first some of what fills it may be free space between the objects.
	n := 0
	for full := 0; full < 3; k.settle() {
		if k.Look(t.Context()); k.full(t) {
			full++
			continue
		}
		if full > 0 {
			t.Fatal("it takes writes, and nothing was deleted")
		}
		n += k.fill(t, func(i int) string { return ownKey(n + i) })
	}
	// The last write may have been stored although it was refused.
	if _, err := k.etcd.Delete(t.Context(), ownKey(1), clientv3.WithRange(ownKey(n+1))); err != nil {
		t.Fatal(err)
	}
	if k.Look(t.Context()); k.full(t) {
		t.Error("it is still full")
	}
	left, err := k.etcd.KV.Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(left.Kvs) != 1 || string(left.Kvs[0].Key) != ownKey(0) {
		t.Errorf("of the one object that was not deleted there is %v, %v", left, err)
	}
}

// History is compacted early where etcd is nearly full, and the key says so by which API
// servers agree on compactions; what is younger is kept.
func TestCompactsEarly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mebibytes int
		after     time.Duration
		want      bool
	}{
		"with room":                        {10, time.Minute, false},
		"young history":                    {22, 9 * time.Second, false},
		"old history":                      {22, 10 * time.Second, true},
		"younger history, hardly any room": {27, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startKeeping(t)
			k.Defragment = false // which would make room as well
			k.write(t, tc.mebibytes)
			k.Look(t.Context())
			seen := k.revisions[0].revision
			if err := k.put(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			k.clock.Step(tc.after)
			k.Look(t.Context())
			_, err := k.etcd.KV.Get(t.Context(), "key", clientv3.WithRev(seen-1))
			if compacted := errors.Is(err, rpctypes.ErrCompacted); compacted != tc.want || err != nil && !compacted {
				t.Errorf("reading what is older: %v", err)
			}
			if _, err := k.etcd.KV.Get(t.Context(), "key", clientv3.WithRev(seen)); err != nil {
				t.Errorf("reading what is younger: %v", err)
			}
			key, err := k.etcd.KV.Get(t.Context(), "compact_rev_key")
			if err != nil || len(key.Kvs) > 0 != tc.want || tc.want && string(key.Kvs[0].Value) != fmt.Sprint(seen) {
				t.Errorf("the key of compactions is %v, %v, want %d", key.Kvs, err, seen)
			}
		})
	}
}

// A compaction of another program, which the Keeper finds by the key, does not keep it from its own.
func TestCompactsAfterOthers(t *testing.T) {
	t.Parallel()
	k := startKeeping(t)
	k.Defragment = false
	for range 5 {
		if _, err := k.etcd.KV.Put(t.Context(), "compact_rev_key", "1"); err != nil {
			t.Fatal(err)
		}
	}
	k.write(t, 21)
	k.Look(t.Context())
	k.clock.Step(keptHistory)
	k.Look(t.Context())
	if _, err := k.etcd.KV.Get(t.Context(), "key", clientv3.WithRev(10)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading old history: %v", err)
	}
}

// A file near the quota that is mostly free is written anew: the quota counts the file.
func TestDefragmentsNearTheQuota(t *testing.T) {
	t.Parallel()
	k := startKeeping(t)
	k.write(t, 26)
	now := k.members(t.Context())
	if _, err := k.etcd.Compact(t.Context(), now.revision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		if _, err := k.etcd.KV.Put(t.Context(), "another", ""); err != nil { // what is free is known after writes
			t.Fatal(err)
		}
		k.Look(t.Context())
		return k.members(t.Context())[0].DbSize < 8*mebibyte
	})
	if k.full(t) {
		t.Error("it is full")
	}
}

// waitFor waits until a condition holds, and gives up after a minute.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to that in a minute")
		}
	}
}
