// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// guardTTL is how long the keys of Guards live after they were written, in seconds.
const guardTTL = 3600

// Guards are keys by which transactions can be settled that update no object. Each
// server has its own, as many as it has such transactions at the same time. They go
// with their lease. It is safe for concurrent use.
type Guards struct {
	client clientv3.Lease
	prefix string
	// granting holds a value while a lease is granted, so that one caller does that. Those
	// whose lease is good do not wait for it.
	granting chan struct{}

	mu sync.Mutex
	// free are the keys that no transaction uses.
	free []*guard
	made int
	// lease is good for new keys until renewAt.
	lease   clientv3.LeaseID
	renewAt time.Time
}

// NewGuards returns guards whose keys begin with prefix, which no other server may
// use.
func NewGuards(client clientv3.Lease, prefix string) *Guards {
	return &Guards{client: client, prefix: prefix, granting: make(chan struct{}, 1)}
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
	// and the next transaction expects it there. 0 is a key that is to be written before
	// the transaction is: none expects that there is no key, because there is none either
	// after a lease has ended too early.
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
	lease, err := of.grant(ctx, func() bool { return now.Before(of.renewAt) }, now.Add(guardTTL/2*time.Second))
	if err != nil {
		return err
	}
	t.guard = of.take()
	t.guard.token, t.guard.lease = token, lease
	return nil
}

// take returns a key that no transaction uses.
func (of *Guards) take() *guard {
	of.mu.Lock()
	defer of.mu.Unlock()
	if len(of.free) == 0 {
		return &guard{of: of, key: of.newKey()}
	}
	last := len(of.free) - 1
	g := of.free[last]
	of.free = of.free[:last]
	return g
}

// newKey returns a key that was never used. of.mu is held.
func (of *Guards) newKey() string {
	of.made++
	return fmt.Sprintf("%s%d", of.prefix, of.made)
}

// replaceKey gives a guard a key that was never used.
func (g *guard) replaceKey() {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.key = g.of.newKey()
}

// grant returns the lease for new keys, after making another one, to be renewed at
// renewAt, unless isGood reports that there is no need. isGood is called under of.mu.
func (of *Guards) grant(ctx context.Context, isGood func() bool, renewAt time.Time) (clientv3.LeaseID, error) {
	if lease, ok := of.current(isGood); ok {
		return lease, nil
	}
	select {
	case of.granting <- struct{}{}:
		defer func() { <-of.granting }()
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for a lease in etcd: %w", ctx.Err())
	}
	if lease, ok := of.current(isGood); ok { // another caller has granted it meanwhile
		return lease, nil
	}
	granted, err := of.client.Grant(ctx, guardTTL)
	if err != nil {
		return 0, refusal("making a lease in etcd", err)
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	of.lease, of.renewAt = granted.ID, renewAt
	return of.lease, nil
}

func (of *Guards) current(isGood func() bool) (clientv3.LeaseID, bool) {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.lease, isGood()
}

// renew gives a guard another lease than the one that it has, which is gone.
func (g *guard) renew(ctx context.Context) error {
	of := g.of
	of.mu.Lock()
	renewAt := of.renewAt
	of.mu.Unlock()
	lease, err := of.grant(ctx, func() bool { return of.lease != g.lease }, renewAt)
	if err != nil {
		return err
	}
	g.lease = lease
	return nil
}

// put writes the key, so that the transaction can expect it. The transaction is not sent
// before that, so an error means that it was not written. The put may still be written later,
// over the token of a transaction, so the key is not used again.
func (g *guard) put(ctx context.Context, kv clientv3.KV) error {
	try := func() (*clientv3.PutResponse, error) { return kv.Put(ctx, g.key, "", clientv3.WithLease(g.lease)) }
	written, err := try()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		if err := g.renew(ctx); err != nil {
			return err
		}
		written, err = try()
	}
	if err != nil {
		err = refusal("writing "+g.key, err)
		g.replaceKey()
		return err
	}
	g.isAt(written.Header.Revision)
	return nil
}

// refusal is the error of a write without which the transaction is not sent.
func refusal(what string, err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
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
func (g *guard) settle(ctx context.Context, kv clientv3.KV, onItsWay bool) (written bool, err error) {
	if onItsWay {
		moved, err := kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(g.key), "=", g.at)).
			Then(clientv3.OpPut(g.key, "", clientv3.WithLease(g.lease))).
			Commit()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // the transaction is not written without it either
		case err != nil:
			return false, classify(err)
		case moved.Succeeded:
			g.isAt(moved.Header.Revision)
			return false, nil
		}
	}
	resp, err := kv.Get(ctx, g.key)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", g.key, err)
	}
	if len(resp.Kvs) == 0 {
		g.next = 0
		return false, ErrNotSettled
	}
	g.next = resp.Kvs[0].ModRevision
	return g.next != g.at && string(resp.Kvs[0].Value) == g.token, nil
}

// LeaseGuards gives a lease to the keys that begin with prefix and have none, so that
// they end with it: servers of earlier versions left the guards so that they had
// settled. They are not deleted at once, because a transaction that expects no key may
// still be on its way.
func LeaseGuards(ctx context.Context, client *clientv3.Client, prefix string) error {
	all, err := client.Get(ctx, prefix, clientv3.WithPrefix()) // the keys alone come without their leases
	if err != nil {
		return fmt.Errorf("listing %s: %w", prefix, err)
	}
	var lease clientv3.LeaseID
	for _, kv := range all.Kvs {
		if kv.Lease != 0 {
			continue
		}
		if lease == 0 {
			granted, err := client.Grant(ctx, guardTTL)
			if err != nil {
				return fmt.Errorf("making a lease in etcd: %w", err)
			}
			lease = granted.ID
		}
		key := string(kv.Key)
		_, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)). // or its server uses it
			Then(clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease))).
			Commit()
		if err != nil {
			return fmt.Errorf("giving %s a lease: %w", key, err)
		}
	}
	return nil
}
