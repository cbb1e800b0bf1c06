// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	"k8s.io/utils/clock"
)

// deleteTimeout bounds the deletion of a backup that is not good.
const deleteTimeout = 20 * time.Second

// toDelete returns a context for that. The one of the backup may be what has ended.
func toDelete(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
}

// ErrBehind means that a snapshot is not of the newest data.
var ErrBehind = errors.New("the member of etcd that gave the snapshot is behind the others, or cut off from them")

// Taker takes backups.
type Taker struct {
	// Source is the store, and Target where its backups are kept.
	Source Source
	Target Target
	// EncryptionConfig is the file of the API servers' EncryptionConfiguration, which the
	// backup holds too: without it an encrypted store cannot be read. Empty if they have none.
	EncryptionConfig string
	// Prefix begins the keys of the store.
	Prefix string
	// Recipients are who can read the backup, and Identities decrypt it. Without any, everyone
	// can read it who can read the target.
	Recipients []age.Recipient
	Identities []age.Identity
	// Scratch is a folder with room for four times the store.
	Scratch string
	Clock   clock.PassiveClock
}

// Take takes a backup, and returns what it is called in the target and what it has. It is there
// only if a store that is restored from the snapshot can be read, and if it can be read back. It
// is ErrInvariants if that store breaks some, and then the backup is there all the same: it is
// better than none for as long as the store is not mended.
func (t Taker) Take(ctx context.Context) (Backup, Contents, error) {
	b, breach, err := t.take(ctx, func(ctx context.Context, o *Opened) error { return Check(ctx, o, t.Scratch, t.Prefix) })
	if err != nil {
		return Backup{}, Contents{}, err
	}
	contents, err := t.readBack(ctx, b)
	if err != nil {
		// It would count as the newest.
		ctx, cancel := toDelete(ctx)
		defer cancel()
		err = errors.Join(fmt.Errorf("%s cannot be read back, and is deleted: %w", b.Name, err), t.Target.Delete(ctx, b.Name))
		return Backup{}, Contents{}, err
	}
	if breach != nil {
		return b, contents, fmt.Errorf("%s was taken, but of a store that is not well: %w", b.Name, breach)
	}
	return b, contents, nil
}

// take writes a backup to the target if check says that its files are good, or that they are of
// a store that breaks invariants, which is the breach.
func (t Taker) take(ctx context.Context, check func(context.Context, *Opened) error) (b Backup, breach, err error) {
	dir, err := os.MkdirTemp(t.Scratch, "take-")
	if err != nil {
		return Backup{}, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	contents, err := t.collect(ctx, dir)
	if err != nil {
		return Backup{}, nil, fmt.Errorf("taking a snapshot: %w", err)
	}
	breach = check(ctx, &Opened{Contents: contents, dir: dir})
	if breach != nil && !errors.Is(breach, ErrInvariants) {
		return Backup{}, nil, fmt.Errorf("the snapshot makes no good backup: %w", breach)
	}
	sealed, err := os.OpenFile(filepath.Join(dir, "sealed"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Backup{}, nil, err
	}
	defer func() { err = errors.Join(err, sealed.Close()) }()
	if err := seal(ctx, sealed, contents, dir, t.Recipients); err != nil {
		return Backup{}, nil, err
	}
	if _, err := sealed.Seek(0, 0); err != nil {
		return Backup{}, nil, err
	}
	b, _ = parseName(newName(contents.Taken, contents.Revision, breach != nil))
	if err := t.Target.Write(ctx, b.Name, sealed); err != nil {
		return Backup{}, nil, fmt.Errorf("writing %s to %s: %w", b.Name, t.Target, err)
	}
	return b, breach, nil
}

// readBack reads what is in the target.
func (t Taker) readBack(ctx context.Context, b Backup) (Contents, error) {
	opened, err := Fetch(ctx, t.Target, b, t.Scratch, t.Identities)
	if err != nil {
		return Contents{}, err
	}
	return opened.Contents, opened.Close()
}

// collect puts the files of a backup into a folder.
func (t Taker) collect(ctx context.Context, dir string) (Contents, error) {
	contents := Contents{Version: formatVersion, Taken: t.Clock.Now().UTC()}
	snapshot, atLeast, err := t.Source.Snapshot(ctx)
	if err != nil {
		return Contents{}, err
	}
	path := filepath.Join(dir, snapshotFile)
	sum, err := WriteFile(path, snapshot)
	if err = errors.Join(err, snapshot.Close()); err != nil {
		return Contents{}, err
	}
	status, err := inspect(ctx, path)
	if err != nil {
		return Contents{}, err
	}
	if status.Revision < atLeast {
		return Contents{}, fmt.Errorf("%w: it is of revision %d, when the store had come to %d", ErrBehind, status.Revision, atLeast)
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
	sum, err = WriteFile(filepath.Join(dir, encryptionFile), config)
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
