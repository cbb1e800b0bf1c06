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

// Guards are keys by which transactions that update no object can be settled. Each server has
// its own keys, as many as it has such transactions at the same time. They expire with their
// lease. Guards is safe for concurrent use.
type Guards struct {
	client clientv3.Lease
	prefix string
	// granting is a semaphore, so that one caller at a time requests a lease. It is not a
	// mutex, because a caller stops waiting when its context is done.
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
	// at is the revision at which the transaction expects the key. next is the revision at
	// which the key was seen last, which becomes at of the next transaction; at itself stays,
	// so that Settle can be repeated. 0 means that the key has to be written before the
	// transaction is sent: no transaction expects an absent key, because the key would also be
	// absent after its lease ended early.
	at, next int64
}

// Guard adds a key to the transaction by which it can be settled. The transaction writes token
// into the key; no two transactions may have the same token. Call it after everything else was
// added. It does nothing if the transaction has no room for another key. Call Release when the
// transaction is not needed any more.
func (t *Txn) Guard(ctx context.Context, gs *Guards, token string, now time.Time) error {
	if len(t.writes) >= MaxOps {
		return nil
	}
	lease, err := gs.grant(ctx, func() bool { return now.Before(gs.renewAt) }, now.Add(guardTTL/2*time.Second))
	if err != nil {
		return err
	}
	t.guard = gs.take()
	t.guard.token, t.guard.lease = token, lease
	return nil
}

// take returns a key that no transaction uses.
func (gs *Guards) take() *guard {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.free) == 0 {
		return &guard{of: gs, key: gs.newKey()}
	}
	last := len(gs.free) - 1
	g := gs.free[last]
	gs.free = gs.free[:last]
	return g
}

// newKey returns a key that was never used. gs.mu is held.
func (gs *Guards) newKey() string {
	gs.made++
	return fmt.Sprintf("%s%d", gs.prefix, gs.made)
}

// replaceKey gives a guard a key that was never used.
func (g *guard) replaceKey() {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.key = g.of.newKey()
}

// grant returns the lease for new keys. If isGood returns false for the current lease, it
// requests another one first, which is to be renewed at renewAt. isGood is called under gs.mu.
func (gs *Guards) grant(ctx context.Context, isGood func() bool, renewAt time.Time) (clientv3.LeaseID, error) {
	if lease, ok := gs.current(isGood); ok {
		return lease, nil
	}
	select {
	case gs.granting <- struct{}{}:
		defer func() { <-gs.granting }()
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for a lease in etcd: %w", ctx.Err())
	}
	if lease, ok := gs.current(isGood); ok { // another caller has requested it meanwhile
		return lease, nil
	}
	granted, err := gs.client.Grant(ctx, guardTTL)
	if err != nil {
		return 0, beforeCommit("requesting a lease from etcd", err)
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.lease, gs.renewAt = granted.ID, renewAt
	return gs.lease, nil
}

// current returns the current lease, and reports whether it is good.
func (gs *Guards) current(isGood func() bool) (clientv3.LeaseID, bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.lease, isGood()
}

// renew gives a guard a new lease in place of one that etcd does not have any more.
func (g *guard) renew(ctx context.Context) error {
	gs := g.of
	gs.mu.Lock()
	renewAt := gs.renewAt
	gs.mu.Unlock()
	lease, err := gs.grant(ctx, func() bool { return gs.lease != g.lease }, renewAt)
	if err != nil {
		return err
	}
	g.lease = lease
	return nil
}

// put writes the key, so that the transaction can expect it. The transaction is sent only
// after that, so an error means that it was not written. etcd may still carry out a failed put
// later, and overwrite the token of a later transaction, so the guard gets another key then.
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
		err = beforeCommit("writing "+g.key, err)
		g.replaceKey()
		return err
	}
	g.setRevision(written.Header.Revision)
	return nil
}

// beforeCommit wraps the error of a request that has to succeed before the transaction is sent.
func beforeCommit(what string, err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %s: %w", ErrNoSpace, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Release gives the guard of a transaction back, if it has one.
func (t *Txn) Release(gs *Guards) {
	if g := t.guard; g != nil {
		t.guard = nil
		g.at = g.next
		gs.mu.Lock()
		defer gs.mu.Unlock()
		gs.free = append(gs.free, g)
	}
}

// setRevision sets the revision at which the key is now.
func (g *guard) setRevision(revision int64) { g.at, g.next = revision, revision }

// settle implements Settle for a transaction with a guard. inFlight is that of the transaction.
func (g *guard) settle(ctx context.Context, kv clientv3.KV, inFlight bool) (written bool, err error) {
	if inFlight {
		moved, err := kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(g.key), "=", g.at)).
			Then(clientv3.OpPut(g.key, "", clientv3.WithLease(g.lease))).
			Commit()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // then etcd refuses the transaction as well
		case err != nil:
			return false, classify(err)
		case moved.Succeeded:
			g.setRevision(moved.Header.Revision)
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

// LeaseGuards gives a lease to the keys that begin with prefix and have none, so that they
// expire: servers of earlier versions left the guards of settled transactions without one. The
// keys are not deleted at once, because etcd may still apply a transaction of such a server that
// expects an absent key.
func LeaseGuards(ctx context.Context, client *clientv3.Client, prefix string) error {
	all, err := client.Get(ctx, prefix, clientv3.WithPrefix()) // WithKeysOnly would leave out the leases
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
				return fmt.Errorf("requesting a lease from etcd: %w", err)
			}
			lease = granted.ID
		}
		key := string(kv.Key)
		_, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)). // else its server still uses it
			Then(clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(lease))).
			Commit()
		if err != nil {
			return fmt.Errorf("giving %s a lease: %w", key, err)
		}
	}
	return nil
}
