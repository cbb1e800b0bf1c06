// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import "context"

// KeptFor is how long versions are kept after they were the newest.
const KeptFor = keptFor

// ErrVersion is of a version that is not in the store.
var ErrVersion = errVersion

// Prune is one look of Run.
func (p *Pruner) Prune(ctx context.Context) error { return p.prune(ctx) }
