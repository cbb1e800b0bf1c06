// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

const nameTime = "20060102T150405Z"

var nameForm = regexp.MustCompile(`^sandlot-(\d{8}T\d{6}Z)-r(\d{12,19})(-breached)?\.backup$`)

// Backup is one that is in a target.
type Backup struct {
	// Name is its name there, which has the rest in it.
	Name string
	// Taken is when it was taken, to the second.
	Taken time.Time
	// Revision is that of the store then.
	Revision int64
	// Breached says that the store broke invariants then.
	Breached bool
	// Size is in bytes.
	Size int64
}

// ahead reports whether a backup was taken in the future, by more than clocks differ: by a clock
// that was wrong, or it is none of ours.
func (b Backup) ahead(now time.Time) bool { return b.Taken.After(now.Add(time.Hour)) }

// newName returns the name of a backup. Names sort by time.
func newName(taken time.Time, revision int64, breached bool) string {
	end := ".backup"
	if breached {
		end = "-breached.backup"
	}
	return fmt.Sprintf("sandlot-%s-r%012d%s", taken.UTC().Format(nameTime), revision, end)
}

// parseName returns what a name says, or false if it is not that of a backup.
func parseName(name string) (Backup, bool) {
	parts := nameForm.FindStringSubmatch(name)
	if parts == nil {
		return Backup{}, false
	}
	taken, err := time.Parse(nameTime, parts[1])
	if err != nil {
		return Backup{}, false
	}
	revision, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return Backup{}, false
	}
	return Backup{Name: name, Taken: taken, Revision: revision, Breached: parts[3] != ""}, true
}
