// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// pruneInterval is how often versions of the key are looked for that are not used any more.
const pruneInterval = 10 * time.Minute

// Pruner removes versions of the key that no sandbox uses any more, so that they are in no
// later backup.
type Pruner struct {
	Keyring *Keyring
	// Use returns which versions the sandboxes in the store use. It must not be older than the
	// call.
	Use func(ctx context.Context) (Use, error)
	// Mine reports whether this is the server that removes them. Several at once do no harm.
	Mine  func() bool
	Clock clock.WithTicker
}

// Run works until ctx is done.
func (p *Pruner) Run(ctx context.Context) {
	ticker := p.Clock.NewTicker(pruneInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if !p.Mine() {
			continue
		}
		if err := p.prune(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to remove unused versions of the key for agent-runtimes, retrying")
		}
	}
}

// prune removes what is not used now.
func (p *Pruner) prune(ctx context.Context) error {
	s := p.Keyring.source
	found, err := s.get(ctx)
	if err != nil {
		return err
	}
	plain, _, err := s.decrypt(ctx, found)
	if err != nil {
		return err
	}
	stored, err := decode(plain)
	if err != nil || !stored.removable(p.Clock.Now()) {
		return err
	}
	use, err := p.Use(ctx)
	if err != nil {
		return fmt.Errorf("looking which versions of the key for agent-runtimes are used: %w", err)
	}
	removed := stored.remove(use, p.Clock.Now())
	if len(removed) == 0 {
		return nil
	}
	if plain, err = stored.encode(); err != nil {
		return err
	}
	data, err := s.encrypt(ctx, plain)
	if err != nil {
		return err
	}
	// What is encrypted with a key of before gets a new version when it is encrypted anew. That
	// must not be done here, also if the key has changed since it was read.
	if _, stale, err := s.decrypt(ctx, found); err != nil || stale {
		return err
	}
	// If it was written meanwhile, what is unused is found the next time.
	answer, err := s.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.key), "=", found.ModRevision)).
		Then(clientv3.OpPut(s.key, string(data))).
		Commit()
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.key, err)
	}
	if answer.Succeeded {
		klog.FromContext(ctx).Info("Removed versions of the key for agent-runtimes that no sandbox uses", "versions", removed)
	}
	return p.Keyring.Refresh(ctx)
}
