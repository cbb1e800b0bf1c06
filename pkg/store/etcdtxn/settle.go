// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
)

// ErrNotSettled means that nothing is left of a transaction by which it could be
// known whether it was written.
var ErrNotSettled = errors.New("nothing is left by which the transaction could be judged")

// Settle finds out whether a transaction was written whose Commit ended in
// ErrUnknownOutcome, and makes sure that it never is if it was not yet: it may still
// be on its way to etcd, or proposed there.
//
// It does so by a key that the transaction found at some revision: an object that it
// updates, or its guard. While the key is at that revision the transaction was not
// written; writing the key anew, as it is, then takes away what the transaction
// depends on. Once the key has changed, isOurs compares the object now with the one that the
// transaction writes: whether it became what only this transaction makes it, also if it
// was changed again since.
//
// After ErrNoSpace the transaction is not in flight any more, so the key is only read: etcd
// would refuse to write it.
//
// Other errors than ErrNotSettled mean that etcd did not answer: it may be tried
// again.
func (t *Txn) Settle(ctx context.Context, isOurs func(now, written runtime.Object) bool) (written bool, err error) {
	if t.guard != nil {
		return t.guard.settle(ctx, t.client.kv, t.inFlight)
	}
	for _, w := range t.writes {
		if w.at == 0 || w.obj == nil {
			continue
		}
		for {
			resp, err := t.client.kv.Get(ctx, w.key)
			if err != nil {
				return false, fmt.Errorf("reading %s: %w", w.key, err)
			}
			// The object was deleted, and perhaps created again: ask the next one.
			if len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision > w.at {
				break
			}
			kv := resp.Kvs[0]
			if kv.ModRevision != w.at {
				obj := reflect.New(reflect.TypeOf(w.obj).Elem()).Interface().(runtime.Object)
				if err := w.resource.decode(ctx, w.key, kv.Value, kv.ModRevision, obj); err != nil {
					return false, err
				}
				return isOurs(obj, w.obj), nil
			}
			if !t.inFlight {
				return false, nil
			}
			touch, err := t.client.kv.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(w.key), "=", w.at)).
				Then(clientv3.OpPut(w.key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())).
				Commit()
			if err != nil {
				return false, classify(err)
			}
			if touch.Succeeded {
				return false, nil
			}
		}
	}
	return false, ErrNotSettled
}
