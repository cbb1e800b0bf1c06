// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sandlot-io/sandlot/pkg/store/format"
)

// TestPrepare: what a store is restored from has no sandbox in a pool and all others, and a
// revision beyond any that was seen, before which no client can watch.
func TestPrepare(t *testing.T) {
	const inPool, claimed = page + 30, 7
	for name, config := range map[string]string{
		"plain":     "",
		"encrypted": encryptionFileOf(t, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, config)
			s.fill(t, inPool, claimed)
			target := folder(t.TempDir())
			taker, _ := taker(t, s, target)
			taker.EncryptionConfig = config
			opened := fetch(t, target, take(t, taker))
			if err := Check(t.Context(), opened, t.TempDir(), DefaultPrefix); err != nil {
				t.Errorf("a good backup: %v", err)
			}
			now := start.Add(time.Hour)
			prepared, err := Prepare(t.Context(), opened.Snapshot(), t.TempDir(), DefaultPrefix, now)
			if err != nil {
				t.Fatal(err)
			}
			if prepared.Emptied != inPool {
				t.Errorf("%d sandboxes were in pools, want %d", prepared.Emptied, inPool)
			}
			checkPrepared(t, prepared, opened.Contents.Revision, claimed, now)
		})
	}
}

func checkPrepared(t *testing.T, prepared Prepared, before int64, claimed int, now time.Time) {
	t.Helper()
	if prepared.Revision < now.UnixMicro() {
		t.Errorf("revision %d may have been there before", prepared.Revision)
	}
	_, restored, err := openScratch(t.Context(), t.TempDir(), prepared.Path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	all, err := restored.Get(t.Context(), sandboxes, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range all.Kvs {
		if strings.Contains(string(pair.Key), "pool-") {
			t.Errorf("%s is in a pool", pair.Key)
		}
	}
	if len(all.Kvs) != claimed {
		t.Errorf("%d sandboxes are left, want %d", len(all.Kvs), claimed)
	}
	watch := <-restored.Watch(t.Context(), sandboxes, clientv3.WithPrefix(), clientv3.WithRev(before+1))
	if !errors.Is(watch.Err(), rpctypes.ErrCompacted) {
		t.Errorf("watching at a revision of the past: %v, want %v", watch.Err(), rpctypes.ErrCompacted)
	}
}

// TestEncryptedWithoutKeys: a backup that cannot be read is found out when it is checked, and
// before a restore changes anything.
func TestEncryptedWithoutKeys(t *testing.T) {
	s := newStore(t, encryptionFileOf(t, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="))
	s.fill(t, 1, 1)
	for name, config := range map[string]string{
		"no keys": "", "others": encryptionFileOf(t, "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU="),
	} {
		t.Run(name, func(t *testing.T) {
			target := folder(t.TempDir())
			taker, _ := taker(t, s, target)
			taker.EncryptionConfig = config
			opened := fetch(t, target, takeBad(t, taker))
			scratch := t.TempDir()
			if err := Check(t.Context(), opened, scratch, DefaultPrefix); !errors.Is(err, ErrUnreadable) {
				t.Errorf("Check: %v, want %v", err, ErrUnreadable)
			}
			if _, err := Prepare(t.Context(), opened.Snapshot(), scratch, DefaultPrefix, start); err == nil {
				t.Error("Prepare takes it")
			}
			checkEmpty(t, scratch)
		})
	}
}

// TestBreach: a store that breaks an invariant is backed up and restored all the same,
// with a warning.
func TestBreach(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 1, 2)
	key := sandboxes + "default/claimed-000"
	one, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	twin := strings.ReplaceAll(string(one.Kvs[0].Value), "claimed-000", "claimed-001")
	twin = strings.Replace(twin, "uid of claimed-001", "uid of claimed-000", 1)
	if _, err := s.Put(t.Context(), sandboxes+"default/claimed-001", twin); err != nil {
		t.Fatal(err)
	}
	target := folder(t.TempDir())
	taker, _ := taker(t, s, target)
	b, _, err := taker.Take(t.Context())
	if !errors.Is(err, ErrInvariants) || !b.Breached {
		t.Fatalf("Take: %+v, %v, want %v", b, err, ErrInvariants)
	}
	opened := fetch(t, target, b)
	if err := Check(t.Context(), opened, t.TempDir(), DefaultPrefix); !errors.Is(err, ErrInvariants) {
		t.Errorf("Check: %v, want %v", err, ErrInvariants)
	}
	prepared, err := Prepare(t.Context(), opened.Snapshot(), t.TempDir(), DefaultPrefix, start)
	if err != nil || !errors.Is(prepared.Breach, ErrInvariants) || prepared.Emptied != 1 {
		t.Errorf("Prepare: %+v, %v", prepared, err)
	}
}

// TestPrefix: under the prefix of the API servers a store is checked, and pools are emptied;
// under another there is nothing, which is no good store.
func TestPrefix(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 2, 2)
	all, err := s.Get(t.Context(), sandboxes, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range all.Kvs {
		key := "/team/a" + strings.TrimPrefix(string(pair.Key), DefaultPrefix)
		if _, err := s.Put(t.Context(), key, string(pair.Value)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Delete(t.Context(), DefaultPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	target := folder(t.TempDir())
	taker, _ := taker(t, s, target)
	opened := fetch(t, target, takeBad(t, taker))
	if _, err := Prepare(t.Context(), opened.Snapshot(), t.TempDir(), DefaultPrefix, start); !errors.Is(err, ErrUnreadable) {
		t.Errorf("Prepare under another prefix: %v, want %v", err, ErrUnreadable)
	}
	for _, prefix := range []string{"/team/a", "team/a/"} {
		if err := Check(t.Context(), opened, t.TempDir(), prefix); err != nil {
			t.Errorf("Check under %s: %v", prefix, err)
		}
		if prepared, err := Prepare(t.Context(), opened.Snapshot(), t.TempDir(), prefix, start); err != nil || prepared.Emptied != 2 {
			t.Errorf("Prepare under %s: %+v, %v", prefix, prepared, err)
		}
	}
}

// TestTooNew: a store that a newer version has written is refused before a restore changes
// anything.
func TestTooNew(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 1, 1)
	record := fmt.Sprintf(`{"format":%d,"version":"v9"}`, format.Reads+1)
	if _, err := s.Put(t.Context(), format.Key(DefaultPrefix), record); err != nil {
		t.Fatal(err)
	}
	target := folder(t.TempDir())
	taker, _ := taker(t, s, target)
	_, err := Prepare(t.Context(), fetch(t, target, take(t, taker)).Snapshot(), t.TempDir(), DefaultPrefix, start)
	if !errors.As(err, new(*format.TooNewError)) {
		t.Errorf("Prepare: %v", err)
	}
}

// TestAlarms: a store that was full, or whose members differed, takes writes when it is restored.
func TestAlarms(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 1, 1)
	target := folder(t.TempDir())
	taker, _ := taker(t, s, target)
	good := fetch(t, target, take(t, taker))
	for _, alarm := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
		t.Run(alarm.String(), func(t *testing.T) {
			opened := *good
			opened.dir = t.TempDir()
			raise(t, good.Snapshot().Path, opened.Snapshot().Path, alarm)
			prepared, err := Prepare(t.Context(), opened.Snapshot(), t.TempDir(), DefaultPrefix, start)
			if err != nil {
				t.Fatal(err)
			}
			_, restored, err := openScratch(t.Context(), t.TempDir(), prepared.Path, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer restored.Close()
			if alarms, err := restored.AlarmList(t.Context()); err != nil || len(alarms.Alarms) > 0 {
				t.Errorf("%v, %v", alarms, err)
			}
		})
	}
}

// raise writes a snapshot with an alarm of a member of the past.
func raise(t *testing.T, from, to string, alarm etcdserverpb.AlarmType) {
	t.Helper()
	_, store, err := openScratch(t.Context(), t.TempDir(), from, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	connection, err := grpc.NewClient(store.server.Endpoints()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, err = etcdserverpb.NewMaintenanceClient(connection).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 12345, Alarm: alarm,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := save(t.Context(), store, to); err != nil {
		t.Fatal(err)
	}
}

func TestRevisionBump(t *testing.T) {
	for name, tc := range map[string]struct {
		revision int64
		now      time.Time
		want     int64
	}{
		"first restore":             {revision: 5000, now: start, want: start.UnixMicro()},
		"a second, later":           {revision: start.UnixMicro() + 5000, now: start.Add(time.Hour), want: start.Add(time.Hour).UnixMicro()},
		"a clock that is set back":  {revision: start.UnixMicro(), now: start.Add(-time.Hour), want: start.UnixMicro() + leastBump},
		"again, of the same backup": {revision: 5000, now: start.Add(time.Minute), want: start.Add(time.Minute).UnixMicro()},
	} {
		if got := tc.revision + int64(revisionBump(tc.revision, tc.now)); got != tc.want {
			t.Errorf("%s: revision %d, want %d", name, got, tc.want)
		}
	}
}
