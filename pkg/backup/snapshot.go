// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

// Snapshot is a snapshot of etcd, and what it takes to read it.
type Snapshot struct {
	// Path is its file.
	Path string
	// Revision is that of the store.
	Revision int64
	// EncryptionConfig is the file of the EncryptionConfiguration with which the values can be
	// read, or empty if they are not encrypted.
	EncryptionConfig string
}

// ReadSnapshot returns the snapshot in a file, as "etcdctl snapshot save" writes it, whose values
// can be read with an encryptionConfig. It is ErrDamaged if the file is not what etcd wrote.
func ReadSnapshot(ctx context.Context, path, encryptionConfig string) (Snapshot, error) {
	status, err := inspect(ctx, path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("%s: %w", path, err)
	}
	return Snapshot{Path: path, Revision: status.Revision, EncryptionConfig: encryptionConfig}, nil
}

// inspect returns what is in the file of a snapshot. It is ErrDamaged if that is not what etcd
// wrote.
func inspect(ctx context.Context, path string) (snapshot.Status, error) {
	if err := checkSum(path); err != nil {
		return snapshot.Status{}, err
	}
	status, err := embeddedetcd.SnapshotStatus(ctx, path)
	if err != nil {
		const most = 256 // it quotes values
		return snapshot.Status{}, fmt.Errorf("%w: snapshot: %.*s", ErrDamaged, most, err)
	}
	return status, nil
}

// checkSum compares a snapshot with the checksum at its end, which anyone can compute, and checks
// its pages.
func checkSum(path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// The data itself is in pages, whose size is a multiple of that of a sector.
	length := info.Size() - sha256.Size
	if length <= 0 || length%512 != 0 {
		return fmt.Errorf("%w: a snapshot of %d bytes is not whole", ErrDamaged, info.Size())
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, file, length); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(file, want); err != nil {
		return err
	}
	if !bytes.Equal(hash.Sum(nil), want) {
		return fmt.Errorf("%w: the checksum of the snapshot is of something else", ErrDamaged)
	}
	return checkPages(file, length)
}
