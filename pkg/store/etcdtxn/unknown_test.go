// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

func TestUnknownOutcomeOfAContext(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	tests := map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		cause   error
	}{
		"cancelled": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			}, context.Canceled,
		},
		"expired": {
			func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 0) },
			context.DeadlineExceeded,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			txn, p := client.Txn(), pod(name)
			mustAdd(t, txn.Create(t.Context(), pods.Resource, pods.key(name), p))
			ctx, cancel := tc.context(t.Context())
			defer cancel()
			err := txn.Commit(ctx)
			if !errors.Is(err, etcdtxn.ErrUnknownOutcome) || !errors.Is(err, tc.cause) {
				t.Errorf("Commit() = %v", err)
			}
			if p.ResourceVersion != "" {
				t.Errorf("resourceVersion is %q", p.ResourceVersion)
			}
			resolve(t, txn)
			if _, err := pods.get(t, name); err != nil {
				t.Error(err)
			}
		})
	}
}

// resolve commits again what may have been written: either it is written now, or
// it was before.
func resolve(t *testing.T, txn *etcdtxn.Txn) {
	t.Helper()
	if err := txn.Commit(t.Context()); err != nil && !errors.Is(err, etcdtxn.ErrConflict) {
		t.Errorf("the second Commit() = %v", err)
	}
}

func TestUnknownOutcomeOfAStoppedServer(t *testing.T) {
	config := testserver.NewTestConfig(t)
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(server.Close)
	t.Cleanup(stop)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(patience):
		t.Fatal("etcd does not start")
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: server.Server.Cluster().ClientURLs(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, etcd)
	client := etcdtxn.NewClient(etcd)
	pods := etcdtxn.NewResource(plainConfig(), "/pods")
	draft := func(name string) *etcdtxn.Txn {
		txn := client.Txn()
		mustAdd(t, txn.Create(t.Context(), pods, pods.Key("ns", name), pod(name)))
		return txn
	}
	if err := draft("a").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := draft("b").Commit(ctx); !errors.Is(err, etcdtxn.ErrUnknownOutcome) {
		t.Errorf("Commit() = %v", err)
	}
	if created, err := client.Get(ctx, pods, pods.Key("ns", "a"), &example.Pod{}); err == nil {
		t.Errorf("Get() = %d and no error", created)
	}
}

// forgetful is a KV that loses its answers to transactions: before it sends
// them, or after it got them.
type forgetful struct {
	clientv3.KV
	loses     string
	committed int
	// late is the last that was not sent, and may be yet.
	late clientv3.Txn
	// losesPut has the next Put get no answer. latePut sends it.
	losesPut bool
	latePut  func() error
}

const before, after = "before", "after"

var errLost = status.Error(codes.Unavailable, "error reading from server: EOF")

func (f *forgetful) Txn(ctx context.Context) clientv3.Txn {
	return &forgetfulTxn{f.KV.Txn(ctx), f}
}

func (f *forgetful) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if !f.losesPut {
		return f.KV.Put(ctx, key, value, opts...)
	}
	f.losesPut = false
	f.latePut = func() error {
		_, err := f.KV.Put(ctx, key, value, opts...)
		return err
	}
	return nil, errLost
}

type forgetfulTxn struct {
	clientv3.Txn
	kv *forgetful
}

func (f *forgetfulTxn) If(cs ...clientv3.Cmp) clientv3.Txn { f.Txn = f.Txn.If(cs...); return f }

func (f *forgetfulTxn) Then(ops ...clientv3.Op) clientv3.Txn { f.Txn = f.Txn.Then(ops...); return f }

func (f *forgetfulTxn) Else(ops ...clientv3.Op) clientv3.Txn { f.Txn = f.Txn.Else(ops...); return f }

func (f *forgetfulTxn) Commit() (*clientv3.TxnResponse, error) {
	if f.kv.loses == before {
		f.kv.late = f.Txn
		return nil, errLost
	}
	resp, err := f.Txn.Commit()
	if err == nil && resp.Succeeded {
		f.kv.committed++
	}
	if f.kv.loses == after {
		return nil, errLost
	}
	return resp, err
}

// TestCommitAgain: a transaction of unknown outcome can be committed again. If
// the first one came through, that is a conflict, and never a second write.
func TestCommitAgain(t *testing.T) {
	etcd, plain := start(t)
	claims := newKind(t, etcd, kindOptions{resource: "/claims", transformer: encrypted(t, 1)})
	boxes := newKind(t, etcd, kindOptions{resource: "/boxes"})
	tests := map[string]struct {
		loses     []string // the answers to the transactions, in order
		claimOnly bool
		moved     []int // by the last one; nil if it must succeed
	}{
		"never sent":                   {loses: []string{before, ""}},
		"never sent, several times":    {loses: []string{before, before, before, ""}},
		"came through":                 {loses: []string{after, ""}, moved: []int{0, 1, 2}},
		"came through later":           {loses: []string{before, after, ""}, moved: []int{0, 1, 2}},
		"came through, again no word":  {loses: []string{after, after, before, ""}, moved: []int{0, 1, 2}},
		"came through, a claim alone":  {loses: []string{after, ""}, claimOnly: true, moved: []int{0}},
		"never sent, a claim alone":    {loses: []string{before, ""}, claimOnly: true},
		"came through, asked for ever": {loses: []string{after, "", "", ""}, moved: []int{0, 1, 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kv := &forgetful{KV: etcd.KV}
			client := etcdtxn.NewClient(kv)
			claimKey, x, y := claims.Key(t.Name(), "c"), boxes.Key(t.Name(), "x"), boxes.Key(t.Name(), "y")
			at := make([]int64, 0, 2)
			for _, key := range []string{x, y} {
				txn, p := plain.Txn(), pod("box")
				mustAdd(t, txn.Create(t.Context(), boxes.Resource, key, p))
				if err := txn.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				at = append(at, version(t, p))
			}
			begin := revision(t, etcd.KV)

			txn, claim := client.Txn(), pod("c")
			mustAdd(t, txn.Create(t.Context(), claims.Resource, claimKey, claim))
			if !tc.claimOnly {
				mustAdd(t, txn.Update(t.Context(), boxes.Resource, x, pod("x"), at[0]))
				mustAdd(t, txn.Update(t.Context(), boxes.Resource, y, pod("y"), at[1]))
			}
			for i, loses := range tc.loses {
				kv.loses = loses
				err := txn.Commit(t.Context())
				if loses != "" {
					if !errors.Is(err, etcdtxn.ErrUnknownOutcome) || !errors.Is(err, errLost) || errors.Is(err, etcdtxn.ErrConflict) {
						t.Fatalf("Commit() %d = %v", i, err)
					}
					if claim.ResourceVersion != "" {
						t.Errorf("resourceVersion after Commit() %d is %q", i, claim.ResourceVersion)
					}
					continue
				}
				if tc.moved == nil {
					if err != nil || version(t, claim) != begin+1 {
						t.Errorf("Commit() %d = %v, version %q", i, err, claim.ResourceVersion)
					}
					continue
				}
				want := &etcdtxn.ConflictError{}
				for _, index := range tc.moved {
					want.Modified = append(want.Modified, etcdtxn.Modified{Index: index, ModRevision: begin + 1})
				}
				var conflict *etcdtxn.ConflictError
				if !errors.As(err, &conflict) {
					t.Fatalf("Commit() %d = %v", i, err)
				}
				if diff := cmp.Diff(want, conflict); diff != "" {
					t.Errorf("Commit() %d (-want +got):\n%s", i, diff)
				}
			}
			if kv.committed != 1 || revision(t, etcd.KV) != begin+1 {
				t.Errorf("%d transactions came through, etcd went from %d to %d", kv.committed, begin, revision(t, etcd.KV))
			}
			stored := raw(t, etcd.KV, "/registry"+claimKey)
			if stored == nil || stored.Version != 1 || stored.ModRevision != begin+1 {
				t.Errorf("etcd has %v", stored)
			}
			// The caller can find its own claim.
			mine := &example.Pod{}
			if created, err := client.Get(t.Context(), claims.Resource, claimKey, mine); err != nil || created != begin+1 || mine.UID != claim.UID {
				t.Errorf("Get() = %d, %v, %v", created, err, mine.UID)
			}
		})
	}
}
