// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rewriting writes the values of a store again, each as it is to be stored now, while servers
// write to the store.
package rewriting

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/client-go/util/flowcontrol"
)

const (
	// PageSize is how many values are read at a time. A value may have 1.5 MiB.
	PageSize = 50
	// perSecond bounds what it costs the store, and those who watch it.
	perSecond = 200
)

// NewLimiter returns a limiter of writes.
func NewLimiter() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(perSecond, perSecond)
}

// Rewriting goes through values and writes them again.
type Rewriting struct {
	KV      clientv3.KV
	Limiter flowcontrol.RateLimiter
	// Change returns the new value of a key, nil if the stored one may stay.
	Change func(ctx context.Context, key string, stored []byte) ([]byte, error)
	// Done is called after each key, except for the one at which ctx ended. written says whether its value
	// was written, and err is the error of Change or of the write. An error that it returns ends the work.
	Done func(key string, written bool, err error) error
}

// Below writes the values of all keys with a prefix again. It also ends if a read fails or ctx is done.
func (r Rewriting) Below(ctx context.Context, prefix string) error {
	end := clientv3.GetPrefixRangeEnd(prefix)
	for start := prefix; ; {
		page, err := r.KV.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(PageSize))
		if err != nil {
			return fmt.Errorf("reading from %s: %w", start, err)
		}
		for _, kv := range page.Kvs {
			written, err := r.rewrite(ctx, kv)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := r.Done(string(kv.Key), written, err); err != nil {
				return err
			}
			start = string(kv.Key) + "\x00"
		}
		if !page.More {
			return nil
		}
	}
}

// rewrite writes a value again, if it changes, and if no other client wrote meanwhile. Otherwise what
// that wrote is looked at.
func (r Rewriting) rewrite(ctx context.Context, kv *mvccpb.KeyValue) (bool, error) {
	key := string(kv.Key)
	for {
		data, err := r.Change(ctx, key, kv.Value)
		if err != nil || data == nil {
			return false, err
		}
		if err := r.Limiter.Wait(ctx); err != nil {
			return false, err
		}
		resp, err := r.KV.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)).
			Then(clientv3.OpPut(key, string(data), clientv3.WithIgnoreLease())).
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
