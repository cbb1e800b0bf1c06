// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"filippo.io/age"
)

// Opened is a backup whose files are in a folder of this machine, and as they were written.
type Opened struct {
	// Backup is what it is called in its target.
	Backup Backup
	// Contents is what it says of itself.
	Contents Contents

	dir string
}

// Fetch fetches a backup into a new folder below scratch. It is ErrDamaged if it is not what
// was written. Close removes the folder.
func Fetch(ctx context.Context, target Target, b Backup, scratch string, identities []age.Identity) (_ *Opened, err error) {
	dir, err := os.MkdirTemp(scratch, "backup-")
	if err != nil {
		return nil, err
	}
	o := &Opened{Backup: b, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s of %s: %w", b.Name, target, err), o.Close())
		}
	}()
	r, err := target.Open(ctx, b.Name)
	if err != nil {
		return nil, err
	}
	o.Contents, err = unseal(ctx, r, dir, identities)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	status, err := inspect(ctx, o.Snapshot().Path)
	if err != nil {
		return nil, err
	}
	if status.Revision != o.Contents.Revision || status.TotalKey != o.Contents.Keys {
		return nil, fmt.Errorf("%w: it has revision %d and %d keys, and says %d and %d",
			ErrDamaged, status.Revision, status.TotalKey, o.Contents.Revision, o.Contents.Keys)
	}
	return o, nil
}

// Snapshot is the snapshot in it.
func (o *Opened) Snapshot() Snapshot {
	s := Snapshot{Path: filepath.Join(o.dir, snapshotFile), Revision: o.Contents.Revision}
	for _, f := range o.Contents.Files {
		if f.Name == encryptionFile {
			s.EncryptionConfig = filepath.Join(o.dir, encryptionFile)
		}
	}
	return s
}

// Close removes the files.
func (o *Opened) Close() error { return os.RemoveAll(o.dir) }
