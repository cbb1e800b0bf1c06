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
	"sync"
	"testing"
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	testTarget(t, folder(dir), 1<<20)
	// What a process left that was killed.
	if err := os.WriteFile(filepath.Join(dir, unfinished+newName(start, 3)), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := List(t.Context(), folder(dir)); err != nil || len(all) != 1 {
		t.Errorf("with half a backup the list is %v, %v", all, err)
	}
	file := fileOf(t, 10)
	if err := folder(dir).Write(t.Context(), newName(start, 3), file); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// testTarget tests what every target promises, with files of a size. One backup is left.
func testTarget(t *testing.T, target Target, size int) {
	t.Helper()
	ctx := t.Context()
	if all, err := List(ctx, target); err != nil || len(all) > 0 {
		t.Fatalf("before anything was written: %v, %v", all, err)
	}
	if _, err := Find(ctx, target, ""); !errors.Is(err, ErrNoBackup) {
		t.Errorf("the newest of none: %v", err)
	}
	if _, err := target.Open(ctx, newName(start, 1)); !errors.Is(err, ErrNoBackup) {
		t.Errorf("opening what is not there: %v", err)
	}

	// Interrupted when a part of it has been read.
	interrupted := &dyingContext{Context: ctx, left: 2 + size/(64<<10)}
	interrupted.done, interrupted.kill = context.WithCancel(ctx)
	if err := target.Write(interrupted, newName(start, 1), fileOf(t, size)); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted write: %v", err)
	}
	if all, err := List(ctx, target); err != nil || len(all) > 0 {
		t.Errorf("after an interrupted write: %v, %v", all, err)
	}

	file := fileOf(t, size)
	for _, revision := range []int64{1, 2} {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := target.Write(ctx, newName(start, revision), file); err != nil {
			t.Fatal(err)
		}
	}
	all, err := List(ctx, target)
	if err != nil || len(all) != 2 || all[0].Revision != 2 || all[0].Size != int64(size) {
		t.Fatalf("the list is %+v, %v", all, err)
	}
	r, err := target.Open(ctx, all[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(content, contentOf(size)) {
		t.Errorf("%d bytes are read, %v", len(content), err)
	}
	if err := target.Delete(ctx, all[0].Name); err != nil {
		t.Error(err)
	}
	if left, err := Find(ctx, target, ""); err != nil || left.Name != all[1].Name {
		t.Errorf("left is %+v, %v", left, err)
	}
}

// dyingContext is cancelled when it has been asked so many times whether it is.
type dyingContext struct {
	context.Context
	done context.Context
	kill func()

	mu   sync.Mutex
	left int
}

func (c *dyingContext) Done() <-chan struct{} { return c.done.Done() }

func (c *dyingContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		c.kill()
	}
	return c.done.Err()
}

func contentOf(size int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size] }

func fileOf(t *testing.T, size int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(path, contentOf(size), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestOpenTarget(t *testing.T) {
	for text, want := range map[string]string{
		"/backup":                 "/backup",
		"s3://bucket":             "s3://bucket",
		"s3://bucket/a/b/":        "s3://bucket/a/b",
		"s3://bucket?sse=AES256":  "s3://bucket",
		"s3://b?sse=aws:kms:key1": "s3://b",
		"s3://b/p?endpoint=https://s3.example.com:9000&region=eu": "s3://b/p",
		"":                                  "",
		"ftp://host":                        "",
		"s3:///prefix":                      "",
		"s3://key:secret@bucket":            "",
		"s3://bucket?sse=none":              "",
		"s3://bucket?endpoint=host:9000":    "",
		"s3://bucket?endpoint=https://h/p":  "",
		"s3://bucket?regoin=eu":             "",
		"s3://bucket?endpoint=ftp://h":      "",
		"s3://bucket/p?sse=aws:kms:":        "",
		"https://bucket.s3.amazonaws.com/p": "",
	} {
		target, err := OpenTarget(text)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s is taken", text)
		case want != "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && target.String() != want:
			t.Errorf("%s is %s", text, target)
		}
	}
}
