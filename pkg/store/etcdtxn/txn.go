// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
)

// MaxOps is how many objects one transaction can hold under etcd's default
// --max-txn-ops of 128, which counts the longest of its three lists.
const MaxOps = 128

// MaxBytes bounds the encoded size of one transaction. etcd refuses requests
// of 1.5 MiB by default; the rest is left for keys and framing.
const MaxBytes = 1400 << 10

// Client commits transactions. It is safe for concurrent use.
type Client struct {
	kv clientv3.KV
}

// NewClient returns a Client that writes through kv.
func NewClient(kv clientv3.KV) *Client {
	return &Client{kv: kv}
}

// Txn collects the objects that are written together. Not for concurrent use.
//
//	txn := client.Txn()
//	txn.Create(claims, key, claim)       // only if the key is free
//	txn.Update(sandboxes, key, sb, rev)  // only if it is still at rev
//	err := txn.Commit(ctx)               // all of it or nothing
type Txn struct {
	client *Client
	writes []write
	bytes  int
	// guard is nil unless Guard was called.
	guard *guard
	// inFlight means that etcd may still apply the transaction, because a Commit got no
	// answer.
	inFlight bool
}

type write struct {
	resource *Resource
	key      string
	// obj is nil where the key is only looked at.
	obj  runtime.Object
	data []byte
	// at is the revision that the key must have; 0 where it must be free.
	at int64
}

// Txn begins an empty transaction. Nothing is sent before Commit.
func (c *Client) Txn() *Txn {
	return &Txn{client: c}
}

// Create adds an object that must not exist yet.
func (t *Txn) Create(ctx context.Context, r *Resource, key string, obj runtime.Object) error {
	return t.add(ctx, r, key, obj, 0)
}

// Update adds the new state of an object that must still be at revision at.
func (t *Txn) Update(ctx context.Context, r *Resource, key string, obj runtime.Object, at int64) error {
	if at <= 0 {
		return fmt.Errorf("updating %s: the revision it is based on is missing", key)
	}
	return t.add(ctx, r, key, obj, at)
}

// Expect lets the transaction fail unless an object, which it leaves as it is, is still at
// revision at. A transaction cannot be settled by such an object.
func (t *Txn) Expect(r *Resource, key string, at int64) error {
	if at <= 0 {
		return fmt.Errorf("expecting %s: the revision is missing", key)
	}
	etcdKey, err := r.etcdKey(key)
	if err != nil {
		return err
	}
	t.writes = append(t.writes, write{resource: r, key: etcdKey, at: at})
	t.bytes += len(etcdKey) * 2
	return nil
}

func (t *Txn) add(ctx context.Context, r *Resource, key string, obj runtime.Object, at int64) error {
	etcdKey, err := r.etcdKey(key)
	if err != nil {
		return err
	}
	data, err := r.encode(ctx, etcdKey, obj)
	if err != nil {
		return err
	}
	t.writes = append(t.writes, write{resource: r, key: etcdKey, obj: obj, data: data, at: at})
	t.bytes += len(etcdKey)*3 + len(data) // the key stands in the compare, the put and the else branch
	return nil
}

// Len is the number of objects added so far, with those that are only looked at.
func (t *Txn) Len() int { return len(t.writes) }

// Bytes is about the size of the request so far.
func (t *Txn) Bytes() int { return t.bytes }

// Commit writes every object, or none, in one round trip, and sets the
// transaction's revision as the resourceVersion of each object written.
//
// It fails with a *ConflictError if an object was modified, and with ErrTooLarge or
// another refusal of etcd's; nothing is written in all these cases. If no answer came, it
// fails with ErrUnknownOutcome: see Settle.
func (t *Txn) Commit(ctx context.Context) error {
	if g := t.guard; g != nil && g.at == 0 {
		if err := g.put(ctx, t.client.kv); err != nil {
			return err
		}
	}
	compares, puts, reads := t.operations()
	resp, err := t.client.kv.Txn(ctx).If(compares...).Then(puts...).Else(reads...).Commit()
	if t.guard != nil && errors.Is(err, rpctypes.ErrLeaseNotFound) { // nothing was written
		if err := t.guard.renew(ctx); err != nil {
			return err
		}
		return t.Commit(ctx)
	}
	if err != nil {
		err = classify(err)
		t.inFlight = t.inFlight || errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoSpace)
		return err
	}
	if !resp.Succeeded {
		conflict := t.conflict(resp)
		if len(conflict.Modified) == 0 { // only the guard was modified: its lease has ended, or an earlier transaction with it was written late
			return t.Commit(ctx)
		}
		return conflict
	}
	return t.setRevision(resp.Header.Revision)
}

// setRevision sets the revision of the transaction on the guard and on all objects that it wrote.
func (t *Txn) setRevision(revision int64) error {
	if t.guard != nil {
		t.guard.setRevision(revision)
	}
	for _, w := range t.writes {
		if w.obj == nil {
			continue
		}
		if err := w.resource.versioner.UpdateObject(w.obj, uint64(revision)); err != nil {
			return fmt.Errorf("%w: %s at revision %d: %w", errWritten, w.key, revision, err)
		}
	}
	return nil
}

// operations returns the If, Then and Else of the transaction: what it compares, what it writes
// if all compares hold, and what it reads if one does not.
func (t *Txn) operations() (compares []clientv3.Cmp, puts, reads []clientv3.Op) {
	compares = make([]clientv3.Cmp, 0, len(t.writes)+1)
	puts = make([]clientv3.Op, 0, len(t.writes)+1)
	reads = make([]clientv3.Op, 0, len(t.writes)+1)
	for _, w := range t.writes {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.at))
		if w.obj != nil {
			puts = append(puts, clientv3.OpPut(w.key, string(w.data)))
		}
		reads = append(reads, clientv3.OpGet(w.key, clientv3.WithKeysOnly()))
	}
	if g := t.guard; g != nil {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(g.key), "=", g.at))
		puts = append(puts, clientv3.OpPut(g.key, g.token, clientv3.WithLease(g.lease)))
		reads = append(reads, clientv3.OpGet(g.key, clientv3.WithKeysOnly()))
	}
	return compares, puts, reads
}

func (t *Txn) conflict(resp *clientv3.TxnResponse) *ConflictError {
	conflict := &ConflictError{}
	for i, read := range resp.Responses {
		var current int64
		if kvs := read.GetResponseRange().GetKvs(); len(kvs) > 0 {
			current = kvs[0].GetModRevision()
		}
		if i == len(t.writes) {
			t.guard.setRevision(current)
			continue
		}
		if current != t.writes[i].at {
			conflict.Modified = append(conflict.Modified, Modified{Index: i, ModRevision: current})
		}
	}
	return conflict
}

// Get reads one object from etcd and not from a cache, and returns the revision at which it was
// created; 0 if there is no object.
func (c *Client) Get(ctx context.Context, r *Resource, key string, into runtime.Object) (created int64, err error) {
	etcdKey, err := r.etcdKey(key)
	if err != nil {
		return 0, err
	}
	resp, err := c.kv.Get(ctx, etcdKey)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", etcdKey, err)
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	kv := resp.Kvs[0]
	return kv.CreateRevision, r.decode(ctx, etcdKey, kv.Value, kv.ModRevision, into)
}
