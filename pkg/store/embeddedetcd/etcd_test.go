// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sandlot-io/sandlot/pkg/datadir"
)

func TestDataOutlivesTheServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing", strings.Repeat("long-", 30))
	putValue(t, dir)

	s, err := Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closeServer(t, s)
	if got := get(t, s, "key"); got != "value" {
		t.Errorf("read back %q", got)
	}

	if _, err := Start(t.Context(), dir); !errors.Is(err, datadir.ErrLocked) {
		t.Errorf("second server on the same folder: %v, want ErrLocked", err)
	}
	sockets := s.socketDir
	info, err := os.Stat(sockets)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("folder of sockets has mode %o, want 700", got)
	}
}

// TestInterruptedFirstStart: an etcd that was killed while it made its data is
// never elected, whatever it is given later.
func TestInterruptedFirstStart(t *testing.T) {
	dir := t.TempDir()
	putValue(t, dir)
	unfinished := filepath.Join(dir, "etcd", unfinishedName)
	if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("after a complete start there is a mark of an unfinished one: %v", err)
	}

	logs, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("etcd's log is not where it was: %v", err)
	}
	for name, change := range map[string]func() error{
		"with a log of nothing": func() error { return os.Truncate(logs[0], 0) },
		"before its log":        func() error { return os.RemoveAll(filepath.Join(dir, "etcd", "member")) },
	} {
		if err := errors.Join(os.WriteFile(unfinished, nil, 0o600), change()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := Start(t.Context(), dir)
		if err != nil {
			t.Fatalf("interrupted %s: %v", name, err)
		}
		if got := get(t, s, "key"); got != "" {
			t.Errorf("interrupted %s: reads back %q", name, got)
		}
		closeServer(t, s)
		if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("interrupted %s: the mark stays: %v", name, err)
		}
		putValue(t, dir)
		if logs, err = filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal")); err != nil || len(logs) == 0 {
			t.Fatalf("etcd's log is not where it was: %v", err)
		}
	}
}

func TestStartRefusesForeignFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), dir); !errors.Is(err, datadir.ErrForeign) {
		t.Errorf("Start: %v, want ErrForeign", err)
	}
}

func TestStartWithDamagedData(t *testing.T) {
	garbage := bytes.Repeat([]byte("garbage!"), 8192)
	cases := map[string]struct {
		damage func(t *testing.T, dir string)
		// mends: etcd may put the damage right. It must then have the data.
		mends bool
	}{
		"garbage in the log":        {damage: overwrite("*.wal", garbage)},
		"empty log":                 {damage: overwrite("*.wal", nil)},
		"garbage in the database":   {damage: overwrite("db", garbage)},
		"short garbage in database": {damage: overwrite("db", []byte("garbage"))},
		"database gone":             {damage: remove("db"), mends: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			putValue(t, dir)
			tc.damage(t, dir)

			s, err := Start(t.Context(), dir)
			if err == nil {
				defer closeServer(t, s)
				if !tc.mends {
					t.Fatal("started on damaged data")
				}
				if got := get(t, s, "key"); got != "value" {
					t.Errorf("started without the data: key is %q", got)
				}
				return
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %v", err)
			}
			if !strings.Contains(err.Error(), dir) || !errors.Is(err, errData) {
				t.Errorf("the error does not say what is wrong, or where: %v", err)
			}
		})
	}
}

func TestFailureAfterStart(t *testing.T) {
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	etcd := s.etcd
	done := make(chan struct{})
	go func() {
		defer close(done)
		etcd.GetLogger().Fatal("disk is full", zap.String("path", "/x"))
	}()
	<-done
	select {
	case err := <-s.Failed():
		if err.Error() != "disk is full, path: /x" {
			t.Errorf("unexpected error: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the failure was not reported")
	}
	closeServer(t, s) // does not block, although etcd is not asked to stop
	etcd.Close()
}

func TestStartCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Start(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		if err == nil {
			closeServer(t, s)
		}
		t.Errorf("Start: %v, want context.Canceled", err)
	}
}

// putValue starts an etcd, puts "value" under "key", and stops it.
func putValue(t *testing.T, dir string) {
	t.Helper()
	s, err := Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closeServer(t, s)
	if _, err := dial(t, s).Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
}

// clients are closed before their server, so that it need not wait for them.
var clients = map[*Server][]*clientv3.Client{}

func get(t *testing.T, s *Server, key string) string {
	t.Helper()
	resp, err := dial(t, s).Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != 1 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

func dial(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	clients[s] = append(clients[s], client)
	return client
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	for _, client := range clients[s] {
		client.Close()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.socketDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder of sockets is left behind: %v", err)
	}
}

func overwrite(pattern string, content []byte) func(*testing.T, string) {
	return change(pattern, func(t *testing.T, file string) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	})
}

func remove(pattern string) func(*testing.T, string) {
	return change(pattern, func(t *testing.T, file string) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	})
}

func change(pattern string, f func(t *testing.T, file string)) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		changed := 0
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if ok, _ := filepath.Match(pattern, entry.Name()); ok {
				f(t, path)
				changed++
			}
			return nil
		})
		if err != nil || changed == 0 {
			t.Fatalf("changed %d files of %s: %v", changed, pattern, err)
		}
	}
}
