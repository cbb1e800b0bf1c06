// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

func appendInt(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

func etcdPut(t *testing.T, kv clientv3.KV, key, data string) error {
	t.Helper()
	_, err := kv.Put(t.Context(), key, data)
	return err
}

// TestOneRevision: objects of several resources, encoded and encrypted in their
// own ways, are written at one revision, which each of them says it has and
// which the watches of the generic stores show.
func TestOneRevision(t *testing.T) {
	etcd, client := start(t)
	claims := newKind(t, etcd, kindOptions{resource: "/claims", transformer: encrypted(t, 1)})
	boxes := newKind(t, etcd, kindOptions{resource: "/boxes", codec: protobufCodec})
	before := boxes.create(t, client, "x", "y")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	follow := func(k kind, prefix string) watch.Interface {
		w, err := k.store.Watch(ctx, prefix, storage.ListOptions{
			ResourceVersion: strconv.FormatInt(before, 10), Predicate: storage.Everything, Recursive: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	watches := map[string]watch.Interface{"claims": follow(claims, "/claims"), "boxes": follow(boxes, "/boxes")}

	txn := client.Txn()
	claim, x, y, z := pod("c"), pod("x"), pod("y"), pod("z")
	x.ResourceVersion = "7" // what the caller read does not matter
	mustAdd(t, txn.Create(ctx, claims.Resource, claims.key("c"), claim))
	mustAdd(t, txn.Update(ctx, boxes.Resource, boxes.key("x"), x, before))
	mustAdd(t, txn.Update(ctx, boxes.Resource, boxes.key("y"), y, before))
	mustAdd(t, txn.Create(ctx, boxes.Resource, boxes.key("z"), z))
	if txn.Len() != 4 {
		t.Errorf("Len() = %d", txn.Len())
	}
	if err := txn.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	at := revision(t, etcd.KV)
	if at != before+1 {
		t.Errorf("etcd went from revision %d to %d", before, at)
	}
	for name, p := range map[string]*example.Pod{"claim": claim, "x": x, "y": y, "z": z} {
		if got := p.ResourceVersion; got != strconv.FormatInt(at, 10) {
			t.Errorf("%s has resourceVersion %q, want %d", name, got, at)
		}
	}
	for _, key := range []string{"/registry/claims/ns/c", "/registry/boxes/ns/x", "/registry/boxes/ns/y", "/registry/boxes/ns/z"} {
		if kv := raw(t, etcd.KV, key); kv == nil || kv.ModRevision != at {
			t.Errorf("etcd has %v under %s", kv, key)
		}
	}

	type seen struct {
		Type watch.EventType
		Name string
		At   int64
	}
	want := map[string][]seen{
		"claims": {{watch.Added, "c", at}},
		"boxes":  {{watch.Modified, "x", at}, {watch.Modified, "y", at}, {watch.Added, "z", at}},
	}
	for name, w := range watches {
		var got []seen
		for len(got) < len(want[name]) {
			select {
			case event := <-w.ResultChan():
				p, ok := event.Object.(*example.Pod)
				if !ok {
					t.Fatalf("the watch of %s sends %v", name, event)
				}
				got = append(got, seen{event.Type, p.Name, version(t, p)})
			case <-ctx.Done():
				t.Fatalf("the watch of %s sent only %v", name, got)
			}
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("the watch of %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestConflicts(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	// Before each case a, b and c are there and the rest is not. With them the
	// transaction creates d and e and updates a, b and c, in this order.
	order := []string{"d", "a", "b", "e", "c"}
	const d, a, b, e, c = 0, 1, 2, 3, 4
	write := func(name string) func(*testing.T) int64 {
		return func(t *testing.T) int64 {
			return version(t, pods.update(t, name, func(p *example.Pod) { p.Generation++ }))
		}
	}
	create := func(name string) func(*testing.T) int64 {
		return func(t *testing.T) int64 { return pods.create(t, client, name) }
	}
	remove := func(name string) func(*testing.T) int64 {
		return func(t *testing.T) int64 { pods.remove(t, name); return 0 }
	}
	recreate := func(name string) func(*testing.T) int64 {
		return func(t *testing.T) int64 { pods.remove(t, name); return pods.create(t, client, name) }
	}
	type moves map[int]func(*testing.T) int64
	tests := map[string]struct{ moves moves }{
		"created key exists":       {moves{d: create("d")}},
		"both created keys exist":  {moves{d: create("d"), e: create("e")}},
		"updated key moved":        {moves{a: write("a")}},
		"updated key deleted":      {moves{b: remove("b")}},
		"updated key recreated":    {moves{c: recreate("c")}},
		"last one moved":           {moves{c: write("c")}},
		"several moved":            {moves{a: write("a"), c: write("c")}},
		"one of each":              {moves{d: create("d"), a: write("a"), b: remove("b"), c: recreate("c")}},
		"all":                      {moves{d: create("d"), a: remove("a"), b: write("b"), e: create("e"), c: remove("c")}},
		"all the updated, deleted": {moves{a: remove("a"), b: remove("b"), c: remove("c")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := etcd.Delete(t.Context(), "/registry/pods/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			first := pods.create(t, client, "a", "b", "c")
			expected := map[int]int64{a: first, b: first, c: first}

			draft := func() (*etcdtxn.Txn, []*example.Pod) {
				t.Helper()
				txn, drafts := client.Txn(), make([]*example.Pod, 0, len(order))
				for i, name := range order {
					p := pod(name, func(p *example.Pod) { p.Generation = 77 })
					drafts = append(drafts, p)
					if at := expected[i]; at != 0 {
						mustAdd(t, txn.Update(t.Context(), pods.Resource, pods.key(name), p, at))
					} else {
						mustAdd(t, txn.Create(t.Context(), pods.Resource, pods.key(name), p))
					}
				}
				return txn, drafts
			}

			txn, drafts := draft()
			want := &etcdtxn.ConflictError{}
			for i := range order {
				if move := tc.moves[i]; move != nil {
					expected[i] = move(t)
					want.Modified = append(want.Modified, etcdtxn.Modified{Index: i, ModRevision: expected[i]})
				}
			}
			unchanged(t, etcd.KV, func() {
				for range 2 { // it stays refused
					err := txn.Commit(t.Context())
					var got *etcdtxn.ConflictError
					if !errors.As(err, &got) || !errors.Is(err, etcdtxn.ErrConflict) || errors.Is(err, etcdtxn.ErrUnknownOutcome) {
						t.Fatalf("Commit() = %v", err)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			})
			for i, p := range drafts {
				if p.ResourceVersion != "" {
					t.Errorf("%s was not written and has resourceVersion %q", order[i], p.ResourceVersion)
				}
			}

			txn, drafts = draft()
			if err := txn.Commit(t.Context()); err != nil {
				t.Fatalf("with the fresh revisions: %v", err)
			}
			for i, p := range drafts {
				got, err := pods.get(t, order[i])
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(p, got); diff != "" || got.Generation != 77 {
					t.Errorf("%s (-want +got):\n%s", order[i], diff)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	unchanged(t, etcd.KV, func() {
		for name, at := range map[string]int64{"no revision": 0, "a negative one": -1} {
			t.Run(name, func(t *testing.T) {
				txn := client.Txn()
				if err := txn.Update(t.Context(), pods.Resource, pods.key("a"), pod("a"), at); err == nil {
					t.Error("Update() succeeds")
				}
				if txn.Len() != 0 {
					t.Errorf("the transaction has %d objects", txn.Len())
				}
			})
		}
		t.Run("an object of another scheme", func(t *testing.T) {
			txn := client.Txn()
			if err := txn.Create(t.Context(), pods.Resource, pods.key("a"), &stranger{}); err == nil {
				t.Error("Create() succeeds")
			}
		})
		t.Run("the same key twice", func(t *testing.T) {
			txn := client.Txn()
			mustAdd(t, txn.Create(t.Context(), pods.Resource, pods.key("a"), pod("a")))
			mustAdd(t, txn.Create(t.Context(), pods.Resource, pods.key("a"), pod("a")))
			err := txn.Commit(t.Context())
			for _, not := range []error{nil, etcdtxn.ErrConflict, etcdtxn.ErrTooLarge, etcdtxn.ErrUnknownOutcome} {
				if errors.Is(err, not) {
					t.Errorf("Commit() = %v, is %v", err, not)
				}
			}
		})
		t.Run("nothing", func(t *testing.T) {
			if err := client.Txn().Commit(t.Context()); err != nil {
				t.Errorf("Commit() = %v", err)
			}
		})
	})
}

// stranger is an object that no codec here knows.
type stranger struct{ example.Pod }

func (s *stranger) DeepCopyObject() runtime.Object { return &stranger{*s.Pod.DeepCopy()} }

func TestSizes(t *testing.T) {
	etcd, client := start(t)
	pods := newKind(t, etcd, kindOptions{resource: "/pods"})
	tests := map[string]struct {
		objects, size int
		tooLarge      bool
	}{
		"one":                     {objects: 1},
		"as many as go":           {objects: etcdtxn.MaxOps},
		"one more":                {objects: etcdtxn.MaxOps + 1, tooLarge: true},
		"many more":               {objects: 500, tooLarge: true},
		"large":                   {objects: 1, size: 1 << 20},
		"too large at once":       {objects: 1, size: 1600 << 10, tooLarge: true},
		"too large together":      {objects: 2, size: 800 << 10, tooLarge: true},
		"too large for a client":  {objects: 1, size: 3 << 20, tooLarge: true},
		"too large for a server":  {objects: 3, size: 3 << 20, tooLarge: true},
		"many, too large in sum":  {objects: etcdtxn.MaxOps, size: 13 << 10, tooLarge: true},
		"many, about as much":     {objects: etcdtxn.MaxOps, size: 10 << 10},
		"too many, and too large": {objects: etcdtxn.MaxOps + 1, size: 13 << 10, tooLarge: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			txn, drafts := client.Txn(), make([]*example.Pod, 0, tc.objects)
			key := func(i int) string { return pods.Key(strconv.Itoa(len(drafts)), fmt.Sprint(t.Name(), i)) }
			for i := range tc.objects {
				p := pod("a", sized(tc.size))
				mustAdd(t, txn.Create(t.Context(), pods.Resource, key(i), p))
				drafts = append(drafts, p)
			}
			if txn.Len() != tc.objects || txn.Bytes() < tc.objects*tc.size {
				t.Errorf("Len(), Bytes() = %d, %d", txn.Len(), txn.Bytes())
			}
			if !tc.tooLarge {
				if txn.Bytes() > etcdtxn.MaxBytes {
					t.Errorf("Bytes() = %d is above MaxBytes", txn.Bytes())
				}
				if err := txn.Commit(t.Context()); err != nil {
					t.Errorf("Commit() = %v", err)
				}
				at := revision(t, etcd.KV)
				for i, p := range drafts {
					if version(t, p) != at {
						t.Errorf("object %d has version %d, want %d", i, version(t, p), at)
					}
				}
				return
			}
			unchanged(t, etcd.KV, func() {
				err := txn.Commit(t.Context())
				if !errors.Is(err, etcdtxn.ErrTooLarge) || errors.Is(err, etcdtxn.ErrUnknownOutcome) {
					t.Errorf("Commit() = %v", err)
				}
			})
		})
	}
}

// TestMaxBytes: what MaxBytes lets through, etcd takes, at any number of
// objects, also with long keys, and when it is refused for a conflict.
func TestMaxBytes(t *testing.T) {
	etcd, client := start(t)
	for _, objects := range []int{1, 2, 50, etcdtxn.MaxOps} {
		t.Run(strconv.Itoa(objects), func(t *testing.T) {
			pods := newKind(t, etcd, kindOptions{resource: "/pods", transformer: encrypted(t, 1)})
			draft := func(size int) *etcdtxn.Txn {
				txn := client.Txn()
				for i := range objects {
					key := pods.Key("a-namespace-of-sixty-three-characters-is-as-long-as-they-can-be-x", fmt.Sprintf("%d-of-%0200d", i, objects))
					mustAdd(t, txn.Create(t.Context(), pods.Resource, key, pod("a", sized(size))))
				}
				return txn
			}
			overhead := draft(0).Bytes()
			txn := draft((etcdtxn.MaxBytes - overhead) / objects)
			if got := txn.Bytes(); got > etcdtxn.MaxBytes || got < etcdtxn.MaxBytes-etcdtxn.MaxOps {
				t.Fatalf("Bytes() = %d, is not close to MaxBytes", got)
			}
			if err := txn.Commit(t.Context()); err != nil {
				t.Errorf("Commit() = %v", err)
			}
			var conflict *etcdtxn.ConflictError
			if err := txn.Commit(t.Context()); !errors.As(err, &conflict) || len(conflict.Modified) != objects {
				t.Errorf("the second Commit() = %v", err)
			}
		})
	}
}

// TestBytesCountKeys: a key stands in all three lists of a transaction.
func TestBytesCountKeys(t *testing.T) {
	pods := etcdtxn.NewResource(plainConfig(), "/pods")
	size := func(name string) int {
		txn := etcdtxn.NewClient(nil).Txn() // nothing is sent
		mustAdd(t, txn.Create(t.Context(), pods, pods.Key("ns", name), pod("a")))
		return txn.Bytes()
	}
	if got := size(strings.Repeat("x", 101)) - size("x"); got != 300 {
		t.Errorf("100 more bytes in a key make %d more bytes in all, want 300", got)
	}
}

// TestOneWinner: of many transactions that want the same sandbox, one gets it,
// and the others leave nothing behind.
func TestOneWinner(t *testing.T) {
	etcd, client := start(t)
	claims := newKind(t, etcd, kindOptions{resource: "/claims"})
	boxes := newKind(t, etcd, kindOptions{resource: "/boxes"})
	at := boxes.create(t, client, "box")
	var (
		wins    atomic.Int32
		working sync.WaitGroup
	)
	const callers = 32
	for i := range callers {
		working.Go(func() {
			name := fmt.Sprint("claim-", i)
			txn := client.Txn()
			err := errors.Join(
				txn.Create(t.Context(), claims.Resource, claims.key(name), pod(name)),
				txn.Update(t.Context(), boxes.Resource, boxes.key("box"), pod("box", func(p *example.Pod) { p.Annotations["owner"] = name }), at),
			)
			if err != nil {
				t.Error(err)
				return
			}
			var conflict *etcdtxn.ConflictError
			switch err := txn.Commit(t.Context()); {
			case err == nil:
				wins.Add(1)
			case !errors.As(err, &conflict) || len(conflict.Modified) != 1 || conflict.Modified[0].Index != 1:
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	working.Wait()
	if n := wins.Load(); n != 1 {
		t.Errorf("%d transactions came through", n)
	}
	box, err := boxes.get(t, "box")
	if err != nil {
		t.Fatal(err)
	}
	for i := range callers {
		name := fmt.Sprint("claim-", i)
		claim, err := claims.get(t, name)
		switch {
		case storage.IsNotFound(err) && box.Annotations["owner"] != name:
		case err == nil && box.Annotations["owner"] == name && claim.ResourceVersion == box.ResourceVersion:
		default:
			t.Errorf("%s: %v, version %s; the box is %s's, version %s", name, err, claim.ResourceVersion, box.Annotations["owner"], box.ResourceVersion)
		}
	}
}
