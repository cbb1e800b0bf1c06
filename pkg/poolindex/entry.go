// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import "container/list"

// Pool is the SandboxSet whose sandboxes can be taken in one another's place. A set
// that is deleted and created again under its name is another pool.
type Pool struct {
	Namespace string
	Name      string
	UID       string
}

// Candidate is a sandbox that could be claimed when the index last heard of it.
type Candidate struct {
	Pool Pool
	// Name of the sandbox, unique within the pool's namespace.
	Name string
	// ResourceVersion at which it was available.
	ResourceVersion uint64
	// Revision of the pool's template that it was made from.
	Revision string
}

func (c Candidate) key() entryKey { return entryKey{c.Pool.Namespace, c.Name} }

type entryKey struct{ namespace, name string }

// entry is what the index knows of one sandbox.
type entry struct {
	Candidate
	state   state
	queue   *list.List    // while available
	element *list.Element // in queue
	news    *news         // what the feed reported while it was taken
}

type state uint8

const (
	available state = iota
	taken
	spent
)

type news struct {
	candidate Candidate
	gone      bool
}

// heardOf is the newest version that is known of a sandbox.
func (e *entry) heardOf() uint64 {
	if e.news != nil {
		return e.news.candidate.ResourceVersion
	}
	return e.ResourceVersion
}
