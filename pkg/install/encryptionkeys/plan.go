// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// This file decides; it reads no clock and writes nothing.

// state is what there is of the keys.
type state struct {
	config
	// restored are the names of keys that were not made here but came from a backup. A user
	// who can write backups chooses those, so they are there to be read with.
	restored []string
	// published is since when the API servers can have the key that does not write yet;
	// zero is not yet.
	published time.Time
	// requested means that the annotation AnnotationRotate asks for the next key now.
	requested bool
	// absent means that there is no Secret that API servers could mount, so that none of
	// them has begun without keys.
	absent bool
}

// errConflict means that two keys have one name, so that one of them cannot be used.
var errConflict = errors.New("the two Secrets have different keys of the same name, of which one was not made by sandlot-controller-manager: remove it")

// merge adds the keys that only the other configuration has.
func (c config) merge(other config) (config, error) {
	c.keys = slices.Clone(c.keys)
	for _, k := range other.keys {
		i := slices.IndexFunc(c.keys, k.isNamed)
		switch {
		case i < 0:
			c.keys = append(c.keys, k)
		case c.keys[i].Secret != k.Secret:
			return config{}, errConflict
		}
	}
	return c, nil
}

// missing returns which of the keys that were made are not there.
func (c config) missing(made []string) []string { return without(made, c.names()) }

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// pending returns the place of the key that is to write and does not yet, or -1.
func (s state) pending() int {
	if s.plain {
		return slices.IndexFunc(s.keys, func(k key) bool { return !s.isRestored(k) })
	}
	newest := -1
	for i, k := range s.keys {
		if !s.isRestored(k) && (newest < 0 || k.made().After(s.keys[newest].made())) {
			newest = i
		}
	}
	if newest == 0 {
		return -1
	}
	return newest
}

func (s state) isRestored(k key) bool { return slices.Contains(s.restored, k.Name) }

// isOld reports whether another key is to take the place of the one that writes: by its age, on
// request, or because it was not made here.
func (s state) isOld(now time.Time, rotation time.Duration) bool {
	return s.requested || s.isRestored(s.keys[0]) || !now.Before(s.keys[0].made().Add(rotation))
}

// afterAll returns a time at which a key is the newest: now, unless the clock by which
// another one was made was ahead.
func (s state) afterAll(now time.Time) time.Time {
	for _, k := range s.keys {
		if next := k.made().Add(time.Second); next.After(now) && !s.isRestored(k) {
			now = next
		}
	}
	return now
}

// step is something that was done about the keys: the reason and the note of an event.
type step struct{ reason, note string }

var (
	stepNone    = step{}
	stepFirst   = step{"EncryptionKeyCreated", "Made the first key of the store, which writes from now on"}
	stepNext    = step{"NextEncryptionKeyCreated", "Made the next key of the store. It writes when all API servers can read with it"}
	stepWrite   = step{"EncryptionKeyInUse", "The next key of the store writes from now on. What is stored is encrypted anew with it"}
	stepDecrypt = step{"EncryptionOff", "The store is not encrypted from now on. What is stored is decrypted"}
)

// rules are what a step depends on besides the state.
type rules struct {
	// atRest asks for a store that is encrypted.
	atRest            bool
	rotation, overlap time.Duration
	// mounted means that every API server that runs mounts the Secret.
	mounted bool
}

// next returns the state after the next step.
func (s state) next(now time.Time, r rules) (state, step) {
	waits := s.pending()
	switch {
	case !r.atRest && s.plain:
		s.published = time.Time{}
		return s, stepNone
	case !r.atRest:
		s.plain, s.published = true, time.Time{}
		return s, stepDecrypt
	case len(s.keys) == 0:
		s.keys = []key{newKey(now)}
		// Without the Secret no server starts, so the key is read by all or by none.
		if s.plain = !r.mounted || !s.absent; s.plain {
			s.published = now
			return s, stepNext
		}
		return s, stepFirst
	case waits >= 0 && s.published.IsZero():
		s.published = now
		return s, stepNone
	case waits >= 0 && r.mounted && !now.Before(s.published.Add(r.overlap)):
		k := s.keys[waits]
		s.keys = slices.Insert(slices.Delete(slices.Clone(s.keys), waits, waits+1), 0, k)
		s.plain, s.published = false, time.Time{}
		return s, stepWrite
	case waits < 0 && s.isOld(now, r.rotation):
		s.keys = slices.Insert(slices.Clone(s.keys), 1, newKey(s.afterAll(now)))
		s.published, s.requested = now, false
		return s, stepNext
	}
	return s, stepNone
}

// times returns when something is due.
func (s state) times(r rules) []time.Time {
	if !r.atRest || len(s.keys) == 0 {
		return nil
	}
	if !s.published.IsZero() {
		return []time.Time{s.published.Add(r.overlap)}
	}
	return []time.Time{s.keys[0].made().Add(r.rotation)}
}

// note adds the names of keys to those that were made, one a line.
func note(made string, names []string) string {
	lines := noted(made)
	for _, name := range names {
		if !slices.Contains(lines, name) {
			lines = append(lines, name)
		}
	}
	return strings.Join(lines, "\n")
}

// noted reads the names of the keys that were made.
func noted(made string) (names []string) {
	for line := range strings.Lines(made) {
		if name := strings.TrimSpace(line); name != "" {
			names = append(names, name)
		}
	}
	return names
}
