// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// inspect returns what is in the file of a snapshot. It is ErrDamaged if that is not what etcd
// wrote.
func inspect(path string) (snapshot.Status, error) {
	if err := checkSum(path); err != nil {
		return snapshot.Status{}, err
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil {
		return snapshot.Status{}, fmt.Errorf("%w: snapshot: %w", ErrDamaged, err)
	}
	return status, nil
}

// checkSum compares a snapshot with the checksum at its end.
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
	return nil
}
