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
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	testTarget(t, folder(dir), 1<<20)
	// What processes left that were killed, one of them long ago.
	long := time.Now().Add(-longestWrite - time.Hour)
	for revision, at := range map[int64]time.Time{3: long, 4: time.Now()} {
		path := filepath.Join(dir, unfinished+newName(start, revision, false))
		if err := errors.Join(os.WriteFile(path, []byte("half"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := List(t.Context(), folder(dir)); err != nil || len(all) != 1 {
		t.Errorf("with half a backup the list is %v, %v", all, err)
	}
	file := fileOf(t, 10)
	if err := folder(dir).Write(t.Context(), newName(start, 3, false), file); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 || entries[0].Name() != unfinished+newName(start, 4, false) {
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
	if _, err := Find(ctx, target, "", start); !errors.Is(err, ErrNoBackup) {
		t.Errorf("the newest of none: %v", err)
	}
	if _, err := target.Open(ctx, newName(start, 1, false)); !errors.Is(err, ErrNoBackup) {
		t.Errorf("opening what is not there: %v", err)
	}

	// Interrupted when half of it has been read.
	half := fileOf(t, size)
	interrupted := &dyingContext{Context: ctx, file: half, end: int64(size / 2)}
	interrupted.done, interrupted.kill = context.WithCancel(ctx)
	if err := target.Write(interrupted, newName(start, 1, false), half); !errors.Is(err, context.Canceled) {
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
		if err := target.Write(ctx, newName(start, revision, false), file); err != nil {
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
	if err := target.Delete(ctx, all[0].Name); err != nil {
		t.Errorf("deleting what is not there any more: %v", err)
	}
	if left, err := Find(ctx, target, "", start); err != nil || left.Name != all[1].Name {
		t.Errorf("left is %+v, %v", left, err)
	}
}

// TestNewest: the newest backup is none from the future, which only its name finds.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	late, now, early := newName(start.Add(24*time.Hour), 1, false), newName(start.Add(time.Minute), 2, false), newName(start.Add(-time.Hour), 3, false)
	for _, tc := range []struct{ there, find, want string }{
		{late, "", ""}, {late, late, late}, {early, "", early}, {now, "", now}, {now, late, late},
	} {
		if err := os.WriteFile(filepath.Join(dir, tc.there), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Find(t.Context(), folder(dir), tc.find, start)
		if b.Name != tc.want || (err != nil) != (tc.want == "") || err != nil && !errors.Is(err, ErrNoBackup) {
			t.Errorf("with %s, Find(%q): %+v, %v", tc.there, tc.find, b, err)
		}
	}
}

// dyingContext is cancelled when a file has been read up to an offset.
type dyingContext struct {
	context.Context
	done context.Context
	kill func()
	file *os.File
	end  int64
}

func (c *dyingContext) Done() <-chan struct{} { return c.done.Done() }

func (c *dyingContext) Err() error {
	if at, err := c.file.Seek(0, io.SeekCurrent); err != nil || at >= c.end {
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
		"":                                        "",
		"ftp://host":                              "",
		"s3:///prefix":                            "",
		"s3://key:secret@bucket":                  "",
		"s3://bucket?sse=none":                    "",
		"s3://bucket?endpoint=host:9000":          "",
		"s3://bucket?endpoint=https://h/p":        "",
		"s3://bucket?regoin=eu":                   "",
		"s3://bucket?endpoint=ftp://h":            "",
		"s3://bucket?endpoint=http://h":           "",
		"s3://b?endpoint=http://h&insecure=true":  "s3://b",
		"s3://b?endpoint=http://h&insecure=false": "",
		"s3://bucket/p?sse=aws:kms:":              "",
		"https://bucket.s3.amazonaws.com/p":       "",
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
