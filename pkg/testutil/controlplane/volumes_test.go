// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteVolume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	read := func() map[string]string {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		files, hidden := map[string]string{}, 0
		for _, entry := range entries {
			if entry.Name()[0] == '.' {
				hidden++
				continue
			}
			content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[entry.Name()] = string(content)
		}
		if hidden != 2 { // the link and the folder in force
			t.Errorf("there is %v", entries)
		}
		return files
	}
	var before os.FileInfo
	for _, step := range []struct {
		files   map[string][]byte
		want    map[string]string
		changed bool
	}{
		{map[string][]byte{"a": []byte("1"), "b": []byte("1")}, map[string]string{"a": "1", "b": "1"}, true},
		{map[string][]byte{"a": []byte("1"), "b": []byte("1")}, map[string]string{"a": "1", "b": "1"}, false},
		{map[string][]byte{"a": []byte("2"), "b": []byte("2"), "c": {}}, map[string]string{"a": "2", "b": "2", "c": ""}, true},
	} {
		if err := writeVolume(dir, step.files); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, read()); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		after, err := os.Stat(filepath.Join(dir, currentData))
		if err != nil {
			t.Fatal(err)
		}
		if changed := before == nil || !os.SameFile(before, after); changed != step.changed {
			t.Errorf("written anew: %v, want %v", changed, step.changed)
		}
		before = after
	}
}
