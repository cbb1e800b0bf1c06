// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
)

// The files in a backup, which is a tar archive, in this order.
const (
	contentsFile   = "backup.json"
	snapshotFile   = "snapshot.db"
	encryptionFile = "encryption.yaml"

	formatVersion = 1
	// What the files of a backup have at most. A snapshot is never larger than an etcd, for which
	// 8 GiB is much, and an EncryptionConfiguration is a few keys.
	maxContentsBytes   = 1 << 16
	maxSnapshotBytes   = 64 << 30
	maxEncryptionBytes = 1 << 20

	// ageHeader begins every file that age encrypted.
	ageHeader = "age-encryption.org/"
)

// Contents is what a backup says of itself.
type Contents struct {
	// Version is that of the format.
	Version int `json:"version"`
	// Taken is when the snapshot was asked for.
	Taken time.Time `json:"taken"`
	// Revision is that of the store, and Keys is how many keys it has.
	Revision int64 `json:"revision"`
	Keys     int   `json:"keys"`
	// Files are the other files of the backup.
	Files []ContentsFile `json:"files"`
}

// ContentsFile is a file of a backup.
type ContentsFile struct {
	Name string `json:"name"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// SHA256 is in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// seal writes the files of a folder and what the contents say of them, encrypted for the
// recipients if there are any.
func seal(ctx context.Context, w io.Writer, contents Contents, dir string, recipients []age.Recipient) error {
	if len(recipients) > 0 {
		encrypted, err := age.Encrypt(w, recipients...)
		if err != nil {
			return fmt.Errorf("encrypting the backup: %w", err)
		}
		if err := sealPlain(ctx, encrypted, contents, dir); err != nil {
			return err
		}
		return encrypted.Close()
	}
	return sealPlain(ctx, w, contents, dir)
}

func sealPlain(ctx context.Context, w io.Writer, contents Contents, dir string) error {
	text, err := json.Marshal(contents)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	add := func(name string, size int64, content io.Reader) error {
		header := &tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: contents.Taken, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.Copy(archive, readerOf(ctx, content))
		return err
	}
	if err := add(contentsFile, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for _, f := range contents.Files {
		file, err := os.Open(filepath.Join(dir, f.Name))
		if err != nil {
			return err
		}
		if err := errors.Join(add(f.Name, f.Size, file), file.Close()); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return archive.Close()
}

// unseal writes the files of a backup into a folder, and returns what it says of itself. It is
// ErrDamaged if they are not what was written, and not if they cannot be read or kept here. With
// identities the backup must be encrypted: anyone who may write to the target can make one that
// is not.
func unseal(ctx context.Context, r io.Reader, dir string, identities []age.Identity) (Contents, error) {
	source := &remembering{Reader: readerOf(ctx, r)}
	contents, err := unsealFrom(bufio.NewReader(source), dir, identities)
	if err != nil && source.err != nil {
		return Contents{}, fmt.Errorf("reading the backup: %w", source.err)
	}
	return contents, err
}

// remembering remembers the error of a reader, if it did not just end.
type remembering struct {
	io.Reader
	err error
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

func unsealFrom(sealed *bufio.Reader, dir string, identities []age.Identity) (Contents, error) {
	head, err := sealed.Peek(len(ageHeader))
	encrypted := err == nil && string(head) == ageHeader
	switch {
	case encrypted && len(identities) == 0:
		return Contents{}, errors.New("the backup is encrypted: --identity-file is required")
	case !encrypted && len(identities) > 0 && err == nil:
		return Contents{}, errors.New("the backup is not encrypted, and may be of anyone who can write to the target: with --identity-file only encrypted ones are read")
	case !encrypted:
		return unsealPlain(sealed, dir)
	}
	plain, err := age.Decrypt(sealed, identities...)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return Contents{}, fmt.Errorf("decrypting the backup: %w", err)
	}
	if err != nil {
		return Contents{}, damaged("decrypting", err)
	}
	return unsealPlain(plain, dir)
}

// damaged is the error of reading what is in a backup.
func damaged(what string, err error) error { return fmt.Errorf("%w: %s: %w", ErrDamaged, what, err) }

func unsealPlain(r io.Reader, dir string) (Contents, error) {
	archive := tar.NewReader(r)
	if err := next(archive, contentsFile, maxContentsBytes); err != nil {
		return Contents{}, err
	}
	var contents Contents
	if err := json.NewDecoder(archive).Decode(&contents); err != nil {
		return Contents{}, damaged(contentsFile, err)
	}
	if contents.Version != formatVersion {
		return Contents{}, fmt.Errorf("the backup has format %d, this version of sandlot reads %d", contents.Version, formatVersion)
	}
	if err := checkFiles(contents.Files); err != nil {
		return Contents{}, err
	}
	for _, f := range contents.Files {
		if err := next(archive, f.Name, f.Size); err != nil {
			return Contents{}, err
		}
		sum, err := WriteFile(filepath.Join(dir, f.Name), archive)
		if errors.As(err, new(*fs.PathError)) {
			return Contents{}, err // of the file here
		}
		if err != nil {
			return Contents{}, damaged(f.Name, err)
		}
		if sum != f.SHA256 {
			return Contents{}, fmt.Errorf("%w: SHA-256 of %s is %s, not %s", ErrDamaged, f.Name, sum, f.SHA256)
		}
	}
	return contents, nil
}

// checkFiles returns ErrDamaged if a backup says that it has files that no backup has.
func checkFiles(files []ContentsFile) error {
	left := map[string]int64{snapshotFile: maxSnapshotBytes, encryptionFile: maxEncryptionBytes}
	for _, f := range files {
		most, ok := left[f.Name]
		if !ok {
			return fmt.Errorf("%w: it has a file %q, or has it twice", ErrDamaged, f.Name)
		}
		if f.Size < 0 || f.Size > most {
			return fmt.Errorf("%w: %s of %d bytes, which has %d at most", ErrDamaged, f.Name, f.Size, most)
		}
		delete(left, f.Name)
	}
	if _, missing := left[snapshotFile]; missing {
		return fmt.Errorf("%w: it has no %s", ErrDamaged, snapshotFile)
	}
	return nil
}

// next goes to the next file of an archive. It is ErrDamaged if that is not the one of a name, in
// the form in which seal writes it. The contents have at most size bytes, other files exactly as
// many. A sparse file is refused: a few bytes of an archive would be written as any number of them.
func next(archive *tar.Reader, name string, size int64) error {
	header, err := archive.Next()
	if err != nil {
		return damaged(name, err)
	}
	if header.Name != name || header.Size > size || header.Size < size && name != contentsFile {
		return fmt.Errorf("%w: %q of %d bytes replaces %s", ErrDamaged, header.Name, header.Size, name)
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return fmt.Errorf("%w: %s is sparse", ErrDamaged, name)
		}
	}
	if header.Typeflag != tar.TypeReg {
		return fmt.Errorf("%w: %s is no regular file", ErrDamaged, name)
	}
	return nil
}

// WriteFile writes a file and returns its SHA-256, in hexadecimal digits.
func WriteFile(path string, content io.Reader) (sum string, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, hash), content)
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, file.Close())
}
