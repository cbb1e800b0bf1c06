// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
)

func TestTake(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 3, 2)
	target := folder(t.TempDir())
	taker, clock := taker(t, s, target)
	first := take(t, taker)
	if !first.Taken.Equal(start) || first.Revision != 6 {
		t.Errorf("the backup is %+v", first)
	}
	s.put(t, "later", "")
	clock.SetTime(start.Add(time.Hour))
	second := take(t, taker)
	all, err := List(t.Context(), target)
	if err != nil || len(all) != 2 || all[0].Name != second.Name || all[1].Name != first.Name || all[0].Size == 0 {
		t.Errorf("the list is %+v, %v", all, err)
	}
	for name, want := range map[string]string{"": second.Name, first.Name: first.Name} {
		if b, err := Find(t.Context(), target, name, start.Add(time.Hour)); err != nil || b.Name != want {
			t.Errorf("Find(%q): %+v, %v", name, b, err)
		}
	}
	if _, err := Find(t.Context(), target, "sandlot-other", start); !errors.Is(err, ErrNoBackup) {
		t.Errorf("a name that is not there: %v", err)
	}
	opened := fetch(t, target, first)
	if opened.Contents.Keys != 5 || opened.Snapshot().EncryptionConfig != "" {
		t.Errorf("the contents are %+v", opened.Contents)
	}
}

// source is a Source of bytes that end as it says.
type source struct {
	content []byte
	end     error
	atLeast int64
}

func (s source) Snapshot(context.Context) (io.ReadCloser, int64, error) {
	return io.NopCloser(io.MultiReader(bytes.NewReader(s.content), errorReader{s.end})), s.atLeast, nil
}

type errorReader struct{ error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.error }

// TestBadSnapshot: what is not a whole snapshot becomes no backup.
func TestBadSnapshot(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 2, 2)
	good := s.snapshot(t)
	answer, err := s.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	revision := answer.Header.Revision
	exact, _ := taker(t, source{good, io.EOF, revision}, folder(t.TempDir()))
	if got := take(t, exact); got.Revision != revision {
		t.Errorf("the backup of revision %d is %+v", revision, got)
	}
	flipped := bytes.Clone(good)
	flipped[len(good)/2] ^= 1
	for name, tc := range map[string]struct {
		source source
		want   error
	}{
		"a lost connection":      {source{good[:len(good)/2], io.ErrUnexpectedEOF, 0}, io.ErrUnexpectedEOF},
		"an early end":           {source{good[:len(good)/2], io.EOF, 0}, ErrDamaged},
		"without its checksum":   {source{good[:len(good)-32], io.EOF, 0}, ErrDamaged},
		"a bit that has changed": {source{flipped, io.EOF, 0}, ErrDamaged},
		"nothing":                {source{nil, io.EOF, 0}, ErrDamaged},
		"one of before":          {source{good, io.EOF, revision + 1}, ErrBehind},
	} {
		t.Run(name, func(t *testing.T) {
			target := folder(t.TempDir())
			taker, _ := taker(t, tc.source, target)
			if _, _, err := taker.Take(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("Take: %v, want %v", err, tc.want)
			}
			if names, err := target.Names(t.Context()); err != nil || len(names) > 0 {
				t.Errorf("the target has %v, %v", names, err)
			}
		})
	}
}

// TestDamagedBackup: a backup that has changed is refused, wherever it has.
func TestDamagedBackup(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 20, 20)
	dir := t.TempDir()
	target := folder(dir)
	taker, _ := taker(t, s, target)
	taker.EncryptionConfig = encryptionFileOf(t, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	b := take(t, taker)
	path := filepath.Join(dir, b.Name)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string][]byte{"cut": good[:len(good)/2], "empty": nil}
	for _, at := range []int{512, 600, 2048, len(good) / 2} {
		damaged := bytes.Clone(good)
		damaged[at] ^= 0x10
		damages["changed at "+time.Duration(at).String()] = damaged
	}
	for name, content := range damages {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		scratch := t.TempDir()
		if _, err := Fetch(t.Context(), target, b, scratch, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want %v", name, err, ErrDamaged)
		}
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Errorf("%s: files are left: %v, %v", name, left, err)
		}
	}
}

// rotten is a target that keeps something else than was written.
type rotten struct{ folder }

func (r rotten) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := r.folder.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	content[len(content)/2] ^= 1
	return io.NopCloser(bytes.NewReader(content)), errors.Join(err, file.Close())
}

// TestRottenTarget: a backup that cannot be read back is not left among the good ones.
func TestRottenTarget(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 2, 2)
	target := rotten{folder(t.TempDir())}
	taker, _ := taker(t, s, target)
	if _, _, err := taker.Take(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("Take: %v, want %v", err, ErrDamaged)
	}
	if names, err := target.Names(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("the target has %v, %v", names, err)
	}
	checkEmpty(t, taker.Scratch)
}

// lost is a target to which the connection is lost.
type lost struct{ folder }

func (l lost) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := l.folder.Open(ctx, name)
	return io.NopCloser(io.MultiReader(io.LimitReader(file, 4096), errorReader{io.ErrUnexpectedEOF})), err
}

// TestNotDamaged: a backup is not called damaged because it cannot be read or kept just now.
func TestNotDamaged(t *testing.T) {
	s := newStore(t, "")
	s.fill(t, 2, 2)
	target := folder(t.TempDir())
	taker, _ := taker(t, s, target)
	b := take(t, taker)
	if _, err := Fetch(t.Context(), lost{target}, b, t.TempDir(), nil); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrDamaged) {
		t.Errorf("a lost connection: %v", err)
	}
	file, err := target.Open(t.Context(), b.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := unseal(t.Context(), file, filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrDamaged) {
		t.Errorf("no place for its files: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fetch(cancelled, target, b, t.TempDir(), nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrDamaged) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// TestEncryptedBackup: an encrypted backup says nothing to who has not its identity.
func TestEncryptedBackup(t *testing.T) {
	s := newStore(t, "")
	s.put(t, "secretive", "")
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	target := folder(dir)
	taker, _ := taker(t, s, target)
	plain := take(t, taker)
	if _, err := Fetch(t.Context(), target, plain, t.TempDir(), []age.Identity{own}); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a backup that is not encrypted, where all are: %v", err)
	}
	taker.Recipients, taker.Identities = []age.Recipient{own.Recipient()}, []age.Identity{own}
	b := take(t, taker)
	content, err := os.ReadFile(filepath.Join(dir, b.Name))
	if err != nil || bytes.Contains(content, []byte("secretive")) {
		t.Errorf("the backup is readable: %v", err)
	}
	for name, tc := range map[string]struct {
		identities []age.Identity
		ok         bool
	}{
		"its identity": {[]age.Identity{other, own}, true}, "another": {[]age.Identity{other}, false}, "none": {nil, false},
	} {
		opened, err := Fetch(t.Context(), target, b, t.TempDir(), tc.identities)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if diff := cmp.Diff(1, opened.Contents.Keys); diff != "" {
				t.Errorf("%s: keys (-want +got):\n%s", name, diff)
			}
		}
	}
}
