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
	"k8s.io/utils/clock"
)

// Taker takes backups.
type Taker struct {
	// Source is the store, and Target where its backups are kept.
	Source Source
	Target Target
	// EncryptionConfig is the file of the API servers' EncryptionConfiguration, which the
	// backup holds too: without it an encrypted store cannot be read. Empty if they have none.
	EncryptionConfig string
	// Recipients are who can read the backup. Without any, everyone can who can read the target.
	Recipients []age.Recipient
	// Scratch is a folder with room for two times the store.
	Scratch string
	Clock   clock.PassiveClock
}

// Take takes a backup and returns what it is called in the target. It is there only if the
// snapshot was good.
func (t Taker) Take(ctx context.Context) (b Backup, err error) {
	dir, err := os.MkdirTemp(t.Scratch, "take-")
	if err != nil {
		return Backup{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	contents, err := t.collect(ctx, dir)
	if err != nil {
		return Backup{}, fmt.Errorf("taking a snapshot: %w", err)
	}
	sealed, err := os.OpenFile(filepath.Join(dir, "sealed"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Backup{}, err
	}
	defer func() { err = errors.Join(err, sealed.Close()) }()
	if err := seal(ctx, sealed, contents, dir, t.Recipients); err != nil {
		return Backup{}, err
	}
	if _, err := sealed.Seek(0, 0); err != nil {
		return Backup{}, err
	}
	b, _ = parseName(newName(contents.Taken, contents.Revision))
	if err := t.Target.Write(ctx, b.Name, sealed); err != nil {
		return Backup{}, fmt.Errorf("writing %s to %s: %w", b.Name, t.Target, err)
	}
	return b, nil
}

// collect puts the files of a backup into a folder.
func (t Taker) collect(ctx context.Context, dir string) (Contents, error) {
	contents := Contents{Version: formatVersion, Taken: t.Clock.Now().UTC()}
	snapshot, err := t.Source.Snapshot(ctx)
	if err != nil {
		return Contents{}, err
	}
	path := filepath.Join(dir, snapshotFile)
	sum, err := writeFile(path, snapshot)
	if err = errors.Join(err, snapshot.Close()); err != nil {
		return Contents{}, err
	}
	status, err := inspect(path)
	if err != nil {
		return Contents{}, err
	}
	contents.Revision, contents.Keys = status.Revision, status.TotalKey
	if err := contents.add(dir, snapshotFile, sum); err != nil {
		return Contents{}, err
	}
	if t.EncryptionConfig == "" {
		return contents, nil
	}
	// After the snapshot, so that a key that was new in it is in the file. Should the file
	// have lost an old one meanwhile, Check finds it.
	config, err := os.Open(t.EncryptionConfig)
	if err != nil {
		return Contents{}, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	sum, err = writeFile(filepath.Join(dir, encryptionFile), config)
	if err = errors.Join(err, config.Close()); err != nil {
		return Contents{}, err
	}
	return contents, contents.add(dir, encryptionFile, sum)
}

func (c *Contents) add(dir, name, sum string) error {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	c.Files = append(c.Files, ContentsFile{Name: name, Size: info.Size(), SHA256: sum})
	return nil
}
