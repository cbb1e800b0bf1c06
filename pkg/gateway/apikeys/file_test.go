// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/testutil/keystest"
)

func TestFile(t *testing.T) {
	keystest.Contract(t, open(t, t.TempDir()), "team-a", "team-b")
}

// Keys are there after a restart, in a file that no one else reads and that has no secret.
func TestFileStays(t *testing.T) {
	folder := t.TempDir()
	k := apikeys.New(open(t, folder))
	record, text, err := k.Issue(t.Context(), apikeys.Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	again := apikeys.New(open(t, folder))
	if caller, err := again.Authenticate(t.Context(), text); err != nil || caller.KeyID != record.ID {
		t.Errorf("after a restart: %+v, %v", caller, err)
	}
	if listed, err := again.List(t.Context(), "team"); err != nil || len(listed) != 1 || listed[0] != record {
		t.Errorf("after a restart: %+v, %v, want %+v", listed, err, record)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Fatalf("in the folder are %v, %v", entries, err)
	}
	path := filepath.Join(folder, entries[0].Name())
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), text[20:40]) || !strings.Contains(string(content), record.ID) {
		t.Errorf("it has\n%s%v", content, err)
	}
}

// A key that could not be written is not there, and one that could not be removed is.
func TestFileNotWritten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "keys")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	k := apikeys.New(open(t, folder))
	record, text, err := k.Issue(t.Context(), apikeys.Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Issue(t.Context(), apikeys.Request{Team: "team", Name: "lost"}); err == nil {
		t.Error("a key was issued that is not in the file")
	}
	if gone, err := k.Revoke(t.Context(), "team", record.ID); err == nil || len(gone) > 0 {
		t.Errorf("revoked %+v, which is in the file", gone)
	}
	if _, err := k.Authenticate(t.Context(), text); err != nil {
		t.Error(err)
	}
	if listed, err := k.List(t.Context(), "team"); err != nil || len(listed) != 1 {
		t.Errorf("lists %+v, %v", listed, err)
	}
}

func TestFileDamaged(t *testing.T) {
	const good = `{"id":"0123456789abcdef","team":"t","name":"n","createdAt":"2026-01-02T03:04:05Z","salt":"AAAAAAAAAAAAAAAAAAAAAA==","hash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`
	for name, tc := range map[string]struct {
		content string
		ok      bool
	}{
		"a key":       {"[" + good + "]", true},
		"none":        {"[]", true},
		"no JSON":     {"[" + good, false},
		"empty":       {"", false},
		"a short id":  {"[" + strings.Replace(good, "0123", "012", 1) + "]", false},
		"no hash":     {"[" + strings.Replace(good, "hash", "hush", 1) + "]", false},
		"a short one": {"[" + strings.Replace(good, "AAAAAAAA", "AAAA", 1) + "]", false},
		"no team":     {"[" + strings.Replace(good, `"t"`, `"../t"`, 1) + "]", false},
		"no maker":    {"[" + strings.Replace(good, `"salt"`, `"makers":["x"],"salt"`, 1) + "]", false},
		"too long":    {"[" + good + strings.Repeat(" ", 16<<20) + "]", false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "e2b-keys.json"), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := apikeys.OpenFile(folder, clock.RealClock{}); (err == nil) != tc.ok {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// Many callers at once: each key is one, and keys make no more than a team may have.
func TestFileConcurrently(t *testing.T) {
	k := apikeys.New(open(t, t.TempDir()))
	root, _, err := k.Issue(t.Context(), apikeys.Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	by := apikeys.Caller{Team: "team", KeyID: root.ID}
	var all sync.WaitGroup
	for range apikeys.MaxPerTeam + 20 {
		all.Go(func() {
			record, text, err := k.Issue(t.Context(), apikeys.Request{Team: "team", Name: "made", By: &by})
			if errors.Is(err, apikeys.ErrLimit) {
				return
			}
			if caller, authErr := k.Authenticate(t.Context(), text); err != nil || authErr != nil || caller.KeyID != record.ID {
				t.Errorf("issued %+v, %v; authenticated as %+v, %v", record, err, caller, authErr)
			}
		})
	}
	all.Wait()
	if listed, err := k.List(t.Context(), "team"); err != nil || len(listed) != apikeys.MaxPerTeam+1 {
		t.Errorf("the team has %d keys, %v", len(listed), err)
	}
}

func open(t *testing.T, folder string) *apikeys.File {
	t.Helper()
	f, err := apikeys.OpenFile(folder, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
