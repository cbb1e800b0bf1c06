// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"
)

// pageSize is how many values are read at a time. A value may have 1.5 MiB.
const pageSize = 50

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
		start, end := resource.Prefix, clientv3.GetPrefixRangeEnd(resource.Prefix)
		for start != "" {
			page, err := r.options.KV.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
			if err != nil {
				return rewritten, fmt.Errorf("reading from %s: %w", start, err)
			}
			start = ""
			for _, kv := range page.Kvs {
				changed, err := r.rewrite(ctx, resource, kv)
				switch {
				case ctx.Err() != nil:
					return rewritten, ctx.Err()
				case err != nil && !isOfValue(err):
					return rewritten, err
				case err != nil:
					failed++
					if errors.Is(err, errUnreadable) {
						undecrypted++
					}
					if first == nil {
						first = err
					}
				case changed:
					rewritten++
					rewrites.Inc()
				}
				start = string(kv.Key) + "\x00"
			}
			if !page.More {
				break
			}
		}
	}
	unreadable.Set(float64(undecrypted))
	if first != nil {
		return rewritten, fmt.Errorf("%d values could not be encrypted anew, of which the first is %w", failed, first)
	}
	return rewritten, nil
}

// rewrite encrypts a value anew, if it is not as a new one would be, and if no other
// client wrote meanwhile. Otherwise what that wrote is looked at.
func (r *Rewriter) rewrite(ctx context.Context, resource Resource, kv *mvccpb.KeyValue) (bool, error) {
	transformer := resource.Transformer
	for {
		key := string(kv.Key)
		plain, stale, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(key))
		if err != nil {
			return false, fmt.Errorf("%s, encrypted with %s, %w: %w", key, keyOf(kv.Value), errUnreadable, err)
		}
		if !stale {
			return false, nil
		}
		data, err := transformer.TransformToStorage(ctx, plain, value.DefaultContext(key))
		if err == nil && resource.Renew != nil && keyOf(kv.Value) != Plain && keyOf(data) != Plain {
			if plain, err = resource.Renew(plain); err != nil {
				return false, fmt.Errorf("renewing %s: %w", key, err)
			}
			data, err = transformer.TransformToStorage(ctx, plain, value.DefaultContext(key))
		}
		if err != nil {
			return false, fmt.Errorf("encrypting %s: %w", key, err)
		}
		if err := r.limiter.Wait(ctx); err != nil {
			return false, err
		}
		resp, err := r.options.KV.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)).
			Then(clientv3.OpPut(key, string(data), clientv3.WithLease(clientv3.LeaseID(kv.Lease)))).
			Else(clientv3.OpGet(key)).
			Commit()
		if err != nil {
			return false, fmt.Errorf("writing %s: %w", key, err)
		}
		if resp.Succeeded {
			return true, nil
		}
		now := resp.Responses[0].GetResponseRange().Kvs
		if len(now) == 0 {
			return false, nil // deleted
		}
		kv = now[0]
	}
}
