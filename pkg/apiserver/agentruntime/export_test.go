// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// KeptFor is how long versions are kept after they were the newest.
const KeptFor = keptFor

// ErrVersion is of a version that is not in the store.
var ErrVersion = errVersion

// Prune is one look of Run.
func (p *Pruner) Prune(ctx context.Context) error { return p.prune(ctx) }

// InitInPool is one attempt at a sandbox that waits in its pool.
func (s *Setup) InitInPool(ctx context.Context, sb *v1alpha1.Sandbox) (id string, err error) {
	its, _ := podRunOf(sb)
	with, err := s.initInPool(ctx, sb, its)
	return with.String(), err
}
