// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
)

// ErrNotSettled means that nothing is left of a transaction by which it could be
// told whether it was written.
var ErrNotSettled = errors.New("nothing is left by which the transaction could be judged")

// Settle finds out whether a transaction was written whose Commit ended in
// ErrUnknownOutcome, and makes sure that it never is if it was not yet: it may still
// be on its way to etcd, or proposed there.
//
// It does so by a key that the transaction found at some revision: an object that it
// updates, or its guard. While the key is at that revision the transaction was not
// written; writing the key anew, as it is, then takes away what the transaction
// depends on. Once the key has moved, isOurs compares the object now with the one that the
// transaction writes: whether it became what only this transaction makes it, also if it
// was changed again since.
//
// Other errors than ErrNotSettled mean that etcd did not answer: it may be tried
// again.
func (t *Txn) Settle(ctx context.Context, isOurs func(now, written runtime.Object) bool) (written bool, err error) {
	if t.guard != nil {
		return t.guard.settle(ctx, t.client.kv)
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
			if len(resp.Kvs) == 0 {
				break // deleted, by this transaction's winner or by another client: ask the next
			}
			kv := resp.Kvs[0]
			if kv.ModRevision != w.at {
				obj := reflect.New(reflect.TypeOf(w.obj).Elem()).Interface().(runtime.Object)
				if err := w.resource.decode(ctx, w.key, kv.Value, kv.ModRevision, obj); err != nil {
					return false, err
				}
				return isOurs(obj, w.obj), nil
			}
			touch, err := t.client.kv.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(w.key), "=", w.at)).
				Then(clientv3.OpPut(w.key, string(kv.Value))).
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

// guardTTL is how long the keys of Guards live after they were written, in seconds.
const guardTTL = 3600

// Guards are keys by which transactions can be settled that update no object. Each
// server has its own, as many as it has such transactions at the same time. They go
// with their lease. It is safe for concurrent use.
type Guards struct {
	lease  clientv3.Lease
	prefix string

	mu sync.Mutex
	// free are the keys that no transaction uses.
	free []*guard
	made int
	// leaseID is good for new keys until renewAt.
	leaseID clientv3.LeaseID
	renewAt time.Time
}

// NewGuards returns guards whose keys begin with prefix, which no other server may
// use.
func NewGuards(lease clientv3.Lease, prefix string) *Guards {
	return &Guards{lease: lease, prefix: prefix}
}

// guard is the key of one transaction.
type guard struct {
	of  *Guards
	key string
	// token is what the transaction writes, under a lease.
	token string
	lease clientv3.LeaseID
	// at is the revision at which the transaction expects the key, and next where it was
	// when it was last heard of: a transaction that is settled again gets the same answer,
	// and the next transaction expects it there.
	at, next int64
}

// Guard lets a transaction be settled by a key that it writes a token into, which
// must differ from that of every other transaction. It must come after everything
// else was added, and does nothing if the transaction has no room for it. Release is
// to be called when the transaction is done with.
func (t *Txn) Guard(ctx context.Context, of *Guards, token string, now time.Time) error {
	if len(t.writes) >= MaxOps {
		return nil
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if !now.Before(of.renewAt) {
		if err := of.grant(ctx); err != nil {
			return err
		}
		of.renewAt = now.Add(guardTTL / 2 * time.Second)
	}
	if len(of.free) == 0 {
		of.made++
		of.free = append(of.free, &guard{of: of, key: fmt.Sprintf("%s%d", of.prefix, of.made)})
	}
	last := len(of.free) - 1
	t.guard, of.free = of.free[last], of.free[:last]
	t.guard.token, t.guard.lease = token, of.leaseID
	return nil
}

// grant makes another lease for new keys; of.mu is held.
func (of *Guards) grant(ctx context.Context) error {
	granted, err := of.lease.Grant(ctx, guardTTL)
	if err != nil {
		return fmt.Errorf("making a lease in etcd: %w", err)
	}
	of.leaseID = granted.ID
	return nil
}

// renew gives a guard another lease than the one that it has, which is gone.
func (g *guard) renew(ctx context.Context) error {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	if g.of.leaseID == g.lease {
		if err := g.of.grant(ctx); err != nil {
			return err
		}
	}
	g.lease = g.of.leaseID
	return nil
}

// Release gives the guard of a transaction back, if it has one.
func (t *Txn) Release(of *Guards) {
	if g := t.guard; g != nil {
		t.guard = nil
		g.at = g.next
		of.mu.Lock()
		defer of.mu.Unlock()
		of.free = append(of.free, g)
	}
}

// isAt takes in at which revision the key is.
func (g *guard) isAt(revision int64) { g.at, g.next = revision, revision }

// settle is Settle by a guard.
func (g *guard) settle(ctx context.Context, kv clientv3.KV) (written bool, err error) {
	resp, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(g.key), "=", g.at)).
		Then(clientv3.OpPut(g.key, "")).
		Else(clientv3.OpGet(g.key)).
		Commit()
	if err != nil {
		return false, classify(err)
	}
	if resp.Succeeded {
		g.isAt(resp.Header.Revision)
		return false, nil
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		g.next = 0
		return false, ErrNotSettled
	}
	g.next = kvs[0].GetModRevision()
	return string(kvs[0].GetValue()) == g.token, nil
}
