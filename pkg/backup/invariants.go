// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/storecheck"
)

// DefaultPrefix begins the keys of all that an API server stores: what its --etcd-prefix is by
// default.
const DefaultPrefix = "/sandlot"

var (
	// ErrUnreadable means that there is something in a store that cannot be read with the
	// keys of its backup, or all of it is under another prefix.
	ErrUnreadable = errors.New("the store has what cannot be read")
	// ErrInvariants means that a store has what the programs never write.
	ErrInvariants = errors.New("the store breaks invariants")
)

// transformers returns what reads values that were encrypted by the configuration in a file,
// or, if that is empty, were not.
func transformers(ctx context.Context, config string) (value.ResourceTransformers, error) {
	if config == "" {
		return encryptionconfig.StaticTransformers(nil), nil
	}
	return storecheck.LoadTransformers(ctx, config)
}

// checkInvariants returns ErrUnreadable or ErrInvariants with the first findings, if a store
// under a prefix is not well.
func checkInvariants(ctx context.Context, kv clientv3.KV, prefix string, read value.ResourceTransformers, now time.Time) error {
	report, err := storecheck.Run(ctx, kv, storecheck.Options{Prefix: prefix, Now: now, Transformers: read})
	if err != nil {
		return err
	}
	if report.Keys == 0 {
		return checkUnused(ctx, kv, prefix)
	}
	switch {
	case report.Unread() > 0:
		return fmt.Errorf("%w: %s", ErrUnreadable, first(report.Findings, findings.NotLookedAt))
	case report.Errors() > 0:
		return fmt.Errorf("%w: %s", ErrInvariants, first(report.Findings, findings.Error))
	}
	return nil
}

// checkUnused returns ErrUnreadable if there is anything in an etcd that has nothing under a
// prefix: then it is the wrong one. Otherwise it was never used.
func checkUnused(ctx context.Context, kv clientv3.KV, prefix string) error {
	all, err := kv.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("counting keys: %w", err)
	}
	if all.Count > 0 {
		return fmt.Errorf("%w: nothing is under %s and %d keys are elsewhere, --etcd-prefix must be that of the API servers", ErrUnreadable, prefix, all.Count)
	}
	return nil
}

// first describes the first findings of a level.
func first(all []findings.Finding, level findings.Level) string {
	const most = 10
	var texts []string
	for _, f := range all {
		if f.Level == level && len(texts) < most {
			texts = append(texts, fmt.Sprintf("%s: %s (%s)", f.Check, f.Message, strings.Join(f.Objects, ", ")))
		}
	}
	return fmt.Sprintf("%d findings, such as %s", findings.Count(all, level), strings.Join(texts, "; "))
}
