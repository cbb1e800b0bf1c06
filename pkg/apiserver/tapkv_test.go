// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// tapKV stands between one or more allocators and etcd. It counts what passes, and
// lets a test decide what becomes of transactions.
type tapKV struct {
	reads, writes atomic.Int64

	mu sync.Mutex
	// onTxn replaces the commit of transactions; nil lets them pass.
	onTxn func(*tapTxn) (*clientv3.TxnResponse, error)
	// onPut is called before a write that is no transaction.
	onPut func()
	// onGet is called before a read of one key.
	onGet func()
}

// decide sets what becomes of transactions from now on; nil lets them pass.
func (kv *tapKV) decide(onTxn func(*tapTxn) (*clientv3.TxnResponse, error)) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.onTxn = onTxn
}

// holdReads lets reads of one key wait until the returned function is called, or for 2
// seconds.
func (kv *tapKV) holdReads() (release func()) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.onGet = func() { <-ctx.Done() }
	return cancel
}

// calls is how many reads and writes have passed.
func (kv *tapKV) calls() int64 { return kv.reads.Load() + kv.writes.Load() }

// server is the option of a server whose allocator goes through kv.
func (kv *tapKV) server() testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) {
		c.ExtraConfig.WrapKV(func(inner clientv3.KV) clientv3.KV { return &tappedKV{KV: inner, tap: kv} })
	})
}

// comesToRest fails the test unless there is a second in which hardly any call passes.
func (kv *tapKV) comesToRest(t *testing.T, within time.Duration) {
	t.Helper()
	var n int64
	for begin := time.Now(); time.Since(begin) < within; {
		before := kv.calls()
		time.Sleep(time.Second)
		if n = kv.calls() - before; n <= 3 {
			return
		}
	}
	t.Errorf("the allocator does not come to rest: %d calls of etcd in the last second", n)
}

// tappedKV is a tapKV on the connection of one server.
type tappedKV struct {
	clientv3.KV
	tap *tapKV
}

func (kv *tappedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	kv.tap.reads.Add(1)
	kv.tap.mu.Lock()
	before := kv.tap.onGet
	kv.tap.mu.Unlock()
	if before != nil {
		before()
	}
	return kv.KV.Get(ctx, key, opts...)
}

func (kv *tappedKV) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	kv.tap.writes.Add(1)
	kv.tap.mu.Lock()
	before := kv.tap.onPut
	kv.tap.mu.Unlock()
	if before != nil {
		before()
	}
	return kv.KV.Put(ctx, key, val, opts...)
}

func (kv *tappedKV) Txn(ctx context.Context) clientv3.Txn {
	return &tapTxn{kv: kv, ctx: ctx}
}

// tapTxn is a transaction that can be sent at any time, and more than once.
type tapTxn struct {
	kv   *tappedKV
	ctx  context.Context
	cmps []clientv3.Cmp
	then []clientv3.Op
	els  []clientv3.Op
}

func (t *tapTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.cmps = append(t.cmps, cs...); return t }
func (t *tapTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = append(t.then, ops...); return t }
func (t *tapTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.els = append(t.els, ops...); return t }

func (t *tapTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.puts() > 0 {
		t.kv.tap.writes.Add(1)
	} else {
		t.kv.tap.reads.Add(1)
	}
	t.kv.tap.mu.Lock()
	decide := t.kv.tap.onTxn
	t.kv.tap.mu.Unlock()
	if decide == nil {
		return t.send()
	}
	return decide(t)
}

// send commits the transaction, whatever became of the call that it was part of.
func (t *tapTxn) send() (*clientv3.TxnResponse, error) {
	return t.kv.KV.Txn(context.WithoutCancel(t.ctx)).If(t.cmps...).Then(t.then...).Else(t.els...).Commit()
}

// puts is how many objects the transaction writes.
func (t *tapTxn) puts() int {
	n := 0
	for _, op := range t.then {
		if op.IsPut() {
			n++
		}
	}
	return n
}

// claims are the keys of the claims that the transaction writes.
func (t *tapTxn) claims() []string {
	var keys []string
	for _, op := range t.then {
		if key := string(op.KeyBytes()); op.IsPut() && strings.Contains(key, "/sandboxclaims/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// putsClaim reports whether the transaction writes the claim of a name.
func (t *tapTxn) putsClaim(name string) bool {
	return slices.ContainsFunc(t.claims(), func(key string) bool { return strings.HasSuffix(key, "/sandboxclaims/default/"+name) })
}

// startTapped starts a server with a pool of its own and a tapKV.
func startTapped(t *testing.T, stock int, opts ...testutil.Option) (*testutil.Server, *tapKV, *v1alpha1.SandboxSet) {
	t.Helper()
	kv := &tapKV{}
	s := testutil.Start(t, append(opts, kv.server())...)
	set := s.Set(t, "default", "pool", int32(max(stock, 10)))
	s.Stock(t, set, 0, stock)
	return s, kv, set
}

// withoutWaiting lets creates answer at once.
func withoutWaiting() testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.SyncWindow = time.Millisecond })
}

// waits makes a claim wait for stock, for long.
func waits(c *v1alpha1.SandboxClaim) {
	c.Spec.CreateOnNoStock, c.Spec.OnShortage = new(false), v1alpha1.ShortageWait
	c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
}

func claimsOf(s *testutil.Server) typed.SandboxClaimInterface {
	return s.Client.AgentsV1alpha1().SandboxClaims("default")
}
