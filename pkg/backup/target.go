// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

var (
	// ErrNoBackup means that a target has no backup, or none of a name.
	ErrNoBackup = errors.New("there is no such backup")
	// ErrDamaged means that a backup is not what was written.
	ErrDamaged = errors.New("the backup is damaged, use another one")
)

// Target is where backups are kept. What is under the name of a backup there is all of it:
// one that is being written has no such name yet.
type Target interface {
	// Names returns the names and sizes of all that is there, backups or not.
	Names(ctx context.Context) (map[string]int64, error)
	// Write keeps a file under a name, all of it or, after an error, nothing.
	Write(ctx context.Context, name string, content *os.File) error
	// Open reads what is kept under a name. It is ErrNoBackup if there is nothing.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete removes what is kept under a name, if anything is.
	Delete(ctx context.Context, name string) error
	// String is what errors and logs call it. It has no secrets.
	String() string
}

// OpenTarget returns the target that a text names: the path of a folder, or
// s3://BUCKET/PREFIX?endpoint=URL&region=REGION&sse=AES256.
func OpenTarget(text string) (Target, error) {
	switch {
	case text == "":
		return nil, errors.New("--target is required: a folder, or s3://BUCKET/PREFIX?endpoint=URL")
	case strings.HasPrefix(text, s3Scheme):
		return openBucket(text)
	case strings.Contains(text, "://"):
		return nil, fmt.Errorf("--target %q: only folders and s3:// are known", text)
	}
	return folder(text), nil
}

// List returns the backups of a target, the newest first.
func List(ctx context.Context, target Target) ([]Backup, error) {
	names, err := target.Names(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", target, err)
	}
	var all []Backup
	for name, size := range names {
		if b, ok := parseName(name); ok {
			b.Size = size
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b Backup) int { return cmp.Compare(b.Name, a.Name) })
	return all, nil
}

// Find returns the backup of a name, or the newest if the name is empty, which is none from the
// future. It is ErrNoBackup if there is none.
func Find(ctx context.Context, target Target, name string, now time.Time) (Backup, error) {
	all, err := List(ctx, target)
	if err != nil {
		return Backup{}, err
	}
	for _, b := range all {
		if name == "" && !b.ahead(now) || b.Name == name {
			return b, nil
		}
	}
	if name == "" && len(all) > 0 {
		return Backup{}, fmt.Errorf("%s has backups from the future only, such as %s: %w", target, all[0].Name, ErrNoBackup)
	}
	if name == "" {
		return Backup{}, fmt.Errorf("%s is empty: %w", target, ErrNoBackup)
	}
	return Backup{}, fmt.Errorf("%s in %s: %w", name, target, ErrNoBackup)
}
