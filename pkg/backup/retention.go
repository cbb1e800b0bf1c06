// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Retention says which backups are kept: those that one of its rules keeps, and the newest of a
// store that broke invariants, which takes the place of none of a store that was well.
type Retention struct {
	// Count is how many of the newest of stores that were well are kept, at least 1.
	Count int
	// Age is how old a backup may be that is kept. 0 keeps none for its age.
	Age time.Duration
}

// Validate returns what is wrong with it.
func (r Retention) Validate() error {
	if r.Count < 1 {
		return errors.New("--keep must be at least 1: the newest backup is never deleted")
	}
	if r.Age < 0 {
		return errors.New("--keep-for must not be negative")
	}
	return nil
}

// expired returns those of all backups, the newest first, that are not kept. One from the
// future is left alone, and does not count.
func (r Retention) expired(all []Backup, now time.Time) []Backup {
	var old []Backup
	left := map[bool]int{false: r.Count, true: 1} // by Breached
	for _, b := range all {
		if b.ahead(now) {
			continue
		}
		if left[b.Breached]--; left[b.Breached] < 0 && now.Sub(b.Taken) > r.Age {
			old = append(old, b)
		}
	}
	return old
}

// Prune deletes the backups that are not kept, and returns them. One is kept whatever the rules
// say, which has just been taken and is known to be good: if no other can be restored, it is all
// there is.
func Prune(ctx context.Context, target Target, r Retention, good Backup, now time.Time) ([]Backup, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	all, err := List(ctx, target)
	if err != nil {
		return nil, err
	}
	var deleted []Backup
	for _, b := range r.expired(all, now) {
		if b.Name == good.Name {
			continue
		}
		if err := target.Delete(ctx, b.Name); err != nil {
			return deleted, fmt.Errorf("deleting %s from %s: %w", b.Name, target, err)
		}
		deleted = append(deleted, b)
	}
	return deleted, nil
}
