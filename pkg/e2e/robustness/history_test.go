// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// verb is what a call asks for.
type verb string

const (
	createClaim    verb = "create"
	getClaim       verb = "get"
	deleteClaim    verb = "delete"
	releaseSandbox verb = "release"
)

// outcome is how a call was answered.
type outcome string

const (
	succeeded outcome = "ok"
	// refused: an error that says that nothing was stored.
	refused outcome = "refused"
	// exists and notFound are about the object that the call names.
	exists   outcome = "exists"
	notFound outcome = "not found"
	// unknown: no answer, or one that leaves it open.
	unknown outcome = "unknown"
)

// call is a request of a client, and what became of it. Times are since the run began.
type call struct {
	Client, Server int
	Start, End     time.Duration
	Verb           verb
	Namespace      string
	// Name is that of the claim or, of a release, the sandbox.
	Name string
	// Attempt is in an annotation of the claim that a create sends. No two creates have the same.
	Attempt      string `json:",omitempty"`
	Replicas     int    `json:",omitempty"`
	AllOrNothing bool   `json:",omitempty"`
	DryRun       bool   `json:",omitempty"`

	Outcome outcome
	// UID and Revision are those of the object of the answer. Sandboxes are the UIDs of those that the claim lists.
	UID       types.UID   `json:",omitempty"`
	Revision  int64       `json:",omitempty"`
	Sandboxes []types.UID `json:",omitempty"`
	Error     string      `json:",omitempty"`
}

func (c *call) String() string {
	text := fmt.Sprintf("client %d: %s %s/%s", c.Client, c.Verb, c.Namespace, c.Name)
	if c.Verb == createClaim {
		text += fmt.Sprintf(" of %d", c.Replicas)
		if c.AllOrNothing {
			text += ", all or nothing"
		}
		if c.DryRun {
			text += ", dry run"
		}
	}
	text += fmt.Sprintf(" at server %d: %s", c.Server, c.Outcome)
	if c.UID != "" {
		text += fmt.Sprintf(" %s %v at %d", c.UID, c.Sandboxes, c.Revision)
	}
	return text
}

// history has the calls of all clients, and what clients saw that no history can have.
type history struct {
	mu       sync.Mutex
	calls    []*call
	problems []string
}

func (h *history) add(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

func (h *history) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// all returns the calls so far in the order in which they ended.
func (h *history) all() []*call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// creates returns how many creates of claims have an outcome. Dry runs do not count.
func (h *history) creates(o outcome) (n int) {
	for _, c := range h.all() {
		if c.Verb == createClaim && c.Outcome == o && !c.DryRun {
			n++
		}
	}
	return n
}
