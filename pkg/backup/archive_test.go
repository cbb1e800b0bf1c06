// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
)

// entry is a file of a forged archive.
type entry struct {
	header  tar.Header
	content []byte
	// sparse is the size that an old GNU header says that the file has.
	sparse int64
}

func file(name string, content []byte) entry {
	return entry{header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}, content: content}
}

// listed is the contents of a backup that has some files.
func listed(t *testing.T, files ...ContentsFile) entry {
	t.Helper()
	text, err := json.Marshal(Contents{Version: formatVersion, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return file(contentsFile, text)
}

func contentsOf(name string, content []byte) ContentsFile {
	sum := sha256.Sum256(content)
	return ContentsFile{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// forge returns an archive as anyone can write one.
func forge(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var all bytes.Buffer
	for _, e := range entries {
		var one bytes.Buffer
		w := tar.NewWriter(&one)
		if err := w.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if e.sparse > 0 {
			oldSparse(one.Bytes()[:512], int64(len(e.content)), e.sparse)
		}
		all.Write(one.Bytes())
	}
	all.Write(make([]byte, 1024))
	return all.Bytes()
}

// oldSparse makes a header that of a sparse file in the old form of GNU tar: what the archive has
// of it is its begin.
func oldSparse(header []byte, has, size int64) {
	header[156] = tar.TypeGNUSparse
	copy(header[257:], "ustar  \x00")
	clear(header[345:512])
	for at, number := range map[int]int64{386: 0, 398: has, 410: size, 422: 0, 483: size} {
		copy(header[at:], fmt.Sprintf("%011o\x00", number))
	}
	copy(header[148:], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
}

// TestForgedArchives: an archive that seal does not write is refused, and what is written here is
// never more than the archive has.
func TestForgedArchives(t *testing.T) {
	small := []byte("small")
	const claimed = 1 << 30
	snapshot := contentsOf(snapshotFile, small)
	large := ContentsFile{Name: snapshotFile, Size: claimed}
	typed := func(kind byte) entry {
		return entry{header: tar.Header{Name: snapshotFile, Typeflag: kind, Linkname: "/etc/passwd"}}
	}
	withContent := file(snapshotFile, small)
	sparse := withContent
	sparse.sparse = claimed
	for name, tc := range map[string]struct {
		archive []byte
		good    bool
	}{
		"a good one":            {forge(t, listed(t, snapshot), withContent), true},
		"an old sparse file":    {forge(t, listed(t, large), sparse), false},
		"sparse contents":       {forge(t, sparseContents(t), withContent), false},
		"a sparse file of PAX":  {forgePAX(t, listed(t, large), snapshotFile, claimed), false},
		"a link":                {forge(t, listed(t, ContentsFile{Name: snapshotFile}), typed(tar.TypeSymlink)), false},
		"a hard link":           {forge(t, listed(t, ContentsFile{Name: snapshotFile}), typed(tar.TypeLink)), false},
		"a folder":              {forge(t, listed(t, ContentsFile{Name: snapshotFile}), typed(tar.TypeDir)), false},
		"a device":              {forge(t, listed(t, ContentsFile{Name: snapshotFile}), typed(tar.TypeBlock)), false},
		"a negative size":       {forge(t, listed(t, ContentsFile{Name: snapshotFile, Size: -1}), withContent), false},
		"too large a snapshot":  {forge(t, listed(t, ContentsFile{Name: snapshotFile, Size: maxSnapshotBytes + 1}), withContent), false},
		"another size":          {forge(t, listed(t, ContentsFile{Name: snapshotFile, Size: 4, SHA256: snapshot.SHA256}), withContent), false},
		"too large a key file":  {forge(t, listed(t, snapshot, contentsOf(encryptionFile, make([]byte, maxEncryptionBytes+1))), withContent, file(encryptionFile, make([]byte, maxEncryptionBytes+1))), false},
		"a file twice":          {forge(t, listed(t, snapshot, snapshot), withContent, withContent), false},
		"a name elsewhere":      {forge(t, listed(t, contentsOf("../"+snapshotFile, small)), file("../"+snapshotFile, small)), false},
		"no snapshot":           {forge(t, listed(t)), false},
		"much that it contains": {forge(t, file(contentsFile, slices.Concat(listed(t, snapshot).content, bytes.Repeat([]byte(" "), maxContentsBytes))), withContent), false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := unseal(t.Context(), bytes.NewReader(tc.archive), dir, nil)
			if tc.good != (err == nil) || !tc.good && !errors.Is(err, ErrDamaged) {
				t.Errorf("unseal: %v", err)
			}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if info, err := f.Info(); err != nil || info.Size() > int64(len(tc.archive)) {
					t.Errorf("%s has %d bytes, of an archive of %d: %v", f.Name(), info.Size(), len(tc.archive), err)
				}
			}
		})
	}
}

// sparseContents is a backup.json that is sparse.
func sparseContents(t *testing.T) entry {
	t.Helper()
	e := listed(t, contentsOf(snapshotFile, []byte("small")))
	e.sparse = maxContentsBytes
	return e
}

// forgePAX returns an archive whose second file is sparse in the form 0.1 of PAX, which the
// library does not write.
func forgePAX(t *testing.T, first entry, name string, size int64) []byte {
	t.Helper()
	text := ""
	for _, record := range [][2]string{
		{"GNU.sparse.major", "0"}, {"GNU.sparse.minor", "1"}, {"GNU.sparse.name", name},
		{"GNU.sparse.size", strconv.FormatInt(size, 10)}, {"GNU.sparse.numblocks", "1"}, {"GNU.sparse.map", "0,5"},
	} {
		line := " " + record[0] + "=" + record[1] + "\n"
		length := len(line) + 2
		text += strconv.Itoa(length) + line
	}
	records := file("records", []byte(text))
	archive := forge(t, first, records, file("any", []byte("small")))
	at := len(forge(t, first)) - 1024
	header := archive[at : at+512]
	header[156] = tar.TypeXHeader
	copy(header[148:], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return archive
}
