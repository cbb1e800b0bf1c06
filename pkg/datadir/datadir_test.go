// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOpen(t *testing.T) {
	cases := map[string]struct {
		files   map[string]string // name to content; a name with "/" at its end is a folder
		wantErr error
	}{
		"empty":                        {},
		"fresh file system":            {files: map[string]string{"lost+found/": ""}},
		"ours":                         {files: map[string]string{markerName: markerContent, "etcd/": ""}},
		"died right after the mark":    {files: map[string]string{markerName: ""}},
		"documents":                    {files: map[string]string{"thesis.tex": "x"}, wantErr: ErrForeign},
		"an etcd of another program":   {files: map[string]string{"member/": ""}, wantErr: ErrForeign},
		"of a later version":           {files: map[string]string{markerName: "sandlot data folder, format 2\n"}, wantErr: ErrForeign},
		"a mark that is something new": {files: map[string]string{markerName: "\x00\x01"}, wantErr: ErrForeign},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for file, content := range tc.files {
				full := filepath.Join(path, file)
				if file[len(file)-1] == '/' {
					if err := os.Mkdir(full, 0o700); err != nil {
						t.Fatal(err)
					}
				} else if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := names(t, path)

			dir, err := Open(path)
			if !errors.Is(err, tc.wantErr) {
				t.Fatalf("Open: %v, want %v", err, tc.wantErr)
			}
			if tc.wantErr != nil {
				if after := names(t, path); len(after) != len(before) {
					t.Errorf("a refused folder was changed: %v, before %v", after, before)
				}
				return
			}
			if _, err := Open(path); !errors.Is(err, ErrLocked) {
				t.Errorf("second Open: %v, want ErrLocked", err)
			}
			if err := dir.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := Open(path)
			if err != nil {
				t.Fatalf("Open after Close: %v", err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenMakesFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	dir, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("mode %o, want 700", got)
	}
}

func TestOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if dir, err := Open(path); err == nil {
		dir.Close()
		t.Error("a file was taken for a data folder")
	}
}

func names(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
