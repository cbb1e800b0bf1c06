// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sandlot-io/sandlot/pkg/store/rewriting"
)

// errUnreadable is of a value that cannot be decrypted.
var errUnreadable = errors.New("which --encryption-provider-config must have")

// isOfValue reports whether an error is of one value, so that others may do: it cannot be
// decrypted, or is so large that it cannot be written with what the encryption adds, as who may
// write a value can arrange.
func isOfValue(err error) bool {
	return errors.Is(err, errUnreadable) || errors.Is(err, rpctypes.ErrRequestTooLarge)
}

// pass goes through all values once, and returns how many were rewritten. It reads
// everything also if there is an error of some values, and fails then. At any other error,
// such as one of a full etcd, it ends.
func (r *Rewriter) pass(ctx context.Context) (rewritten int, err error) {
	var failed, undecrypted int
	var first error
	for _, resource := range r.options.Resources {
		values := rewriting.Rewriting{
			KV: r.options.KV, Limiter: r.limiter,
			Change: resource.encryptedAnew,
			Done: func(_ string, written bool, err error) error {
				if err != nil && !isOfValue(err) {
					return err
				}
				if err != nil {
					failed++
					if errors.Is(err, errUnreadable) {
						undecrypted++
					}
					if first == nil {
						first = err
					}
				}
				if written {
					rewritten++
					rewrites.Inc()
				}
				return nil
			},
		}
		if err := values.Below(ctx, resource.Prefix); err != nil {
			return rewritten, err
		}
	}
	unreadable.Set(float64(undecrypted))
	if first != nil {
		return rewritten, fmt.Errorf("%d values could not be encrypted anew, of which the first is %w", failed, first)
	}
	return rewritten, nil
}

// encryptedAnew returns a value as a new one would be encrypted, nil if it is.
func (r Resource) encryptedAnew(ctx context.Context, key string, stored []byte) ([]byte, error) {
	plain, stale, err := r.Transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("%s, encrypted with %s, %w: %w", key, keyOf(stored), errUnreadable, err)
	}
	if !stale {
		return nil, nil
	}
	data, err := r.Transformer.TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err == nil && r.Renew != nil && keyOf(stored) != Plain && keyOf(data) != Plain {
		if plain, err = r.Renew(plain); err != nil {
			return nil, fmt.Errorf("renewing %s: %w", key, err)
		}
		data, err = r.Transformer.TransformToStorage(ctx, plain, value.DefaultContext(key))
	}
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", key, err)
	}
	return data, nil
}
