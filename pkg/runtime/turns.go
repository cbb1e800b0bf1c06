// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import "context"

// Turns let a number of things be done at a time, and share them out among namespaces as
// calls are. It is safe for concurrent use.
type Turns struct{ shares *shares }

// NewTurns returns turns, so many at a time.
func NewTurns(atOnce int) *Turns { return &Turns{newShares(atOnce)} }

// Begin waits for a turn of a namespace, or until ctx is done. After nil, the turn must be
// ended.
func (t *Turns) Begin(ctx context.Context, namespace string) error {
	return t.shares.begin(ctx, namespace)
}

// End ends a turn of a namespace.
func (t *Turns) End(namespace string) { t.shares.end(namespace) }
