// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// unanswered is a transaction to which etcd did not answer.
type unanswered struct {
	*testing.T
	*etcdtxn.Txn
	etcd   *kubernetes.Client
	kv     *forgetful
	claims kind
	boxes  kind
	name   string // of the claim; its boxes are called so, and a number
}

// unanswered commits a transaction that creates a claim and takes n boxes for it,
// guarded where guards is not nil, and of which the answer is lost: before or after.
func newUnanswered(t *testing.T, etcd *kubernetes.Client, loses string, n int, guards *etcdtxn.Guards) *unanswered {
	t.Helper()
	u := &unanswered{T: t, etcd: etcd, kv: &forgetful{KV: etcd.KV}, name: strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")}
	u.claims = newKind(t, etcd, kindOptions{resource: "/claims"})
	u.boxes = newKind(t, etcd, kindOptions{resource: "/boxes", transformer: encrypted(t, 1)})
	u.Txn = etcdtxn.NewClient(u.kv).Txn()
	mustAdd(t, u.Create(t.Context(), u.claims.Resource, u.claims.key(u.name), pod(u.name)))
	for i := range n {
		at := u.boxes.create(t, etcdtxn.NewClient(etcd.KV), u.box(i))
		mustAdd(t, u.Update(t.Context(), u.boxes.Resource, u.boxes.key(u.box(i)), pod(u.box(i), takenBy(u.name)), at))
	}
	if guards != nil {
		mustAdd(t, u.Guard(t.Context(), guards, "token-of-"+u.name, time.Now()))
	}
	u.kv.loses = loses
	if err := u.Commit(t.Context()); !errors.Is(err, etcdtxn.ErrUnknownOutcome) {
		t.Fatalf("Commit() = %v", err)
	}
	u.kv.loses = ""
	return u
}

func (u *unanswered) box(i int) string { return fmt.Sprint(u.name, "-", i) }

func takenBy(claim string) func(*example.Pod) {
	return func(p *example.Pod) { p.Labels = map[string]string{"taken-by": claim} }
}

// isOurs reports whether a box was taken for the claim.
func (u *unanswered) isOurs(obj, _ runtime.Object) bool {
	return obj.(*example.Pod).Labels["taken-by"] == u.name
}

func (u *unanswered) expectSettled(want bool) {
	u.Helper()
	if written, err := u.Settle(u.Context(), u.isOurs); written != want || err != nil {
		u.Errorf("Settle() = %t, %v, want %t", written, err, want)
	}
}

// expectNever expects that the transaction was not written, and is not if it comes to
// etcd now.
func (u *unanswered) expectNever() {
	u.Helper()
	if u.kv.late != nil {
		if resp, err := u.kv.late.Commit(); err != nil || resp.Succeeded {
			u.Errorf("the transaction that was late: written %v, %v", resp, err)
		}
	}
	if _, err := u.claims.get(u.T, u.name); err == nil {
		u.Error("the claim is there")
	}
}

// TestSettleByAnObject: one that the transaction updates.
func TestSettleByAnObject(t *testing.T) {
	etcd, _ := start(t)
	t.Run("not written, and never will be", func(t *testing.T) {
		u := newUnanswered(t, etcd, before, 2, nil)
		was := raw(t, etcd.KV, "/registry"+u.boxes.key(u.box(0)))
		u.expectSettled(false)
		u.expectSettled(false) // it may be asked again
		u.expectNever()
		if is := raw(t, etcd.KV, "/registry"+u.boxes.key(u.box(0))); string(is.Value) != string(was.Value) || is.ModRevision == was.ModRevision {
			t.Errorf("the box was at revision %d and is at %d", was.ModRevision, is.ModRevision)
		}
		if box, err := u.boxes.get(t, u.box(0)); err != nil || u.isOurs(box, nil) {
			t.Errorf("the generic store reads %v, %v", box, err)
		}
	})
	t.Run("written", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 2, nil)
		unchanged(t, etcd.KV, func() { u.expectSettled(true) })
	})
	t.Run("written, and changed since", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 1, nil)
		u.boxes.update(t, u.box(0), func(p *example.Pod) { p.Status.Phase = "Failed" })
		u.claims.remove(t, u.name)
		unchanged(t, etcd.KV, func() { u.expectSettled(true) })
	})
	t.Run("another has moved it", func(t *testing.T) {
		u := newUnanswered(t, etcd, before, 1, nil)
		u.boxes.update(t, u.box(0), takenBy("another"))
		unchanged(t, etcd.KV, func() { u.expectSettled(false) })
		u.expectNever()
	})
	t.Run("deleted, not written, by the next", func(t *testing.T) {
		u := newUnanswered(t, etcd, before, 3, nil)
		u.boxes.remove(t, u.box(0))
		u.boxes.remove(t, u.box(1))
		u.expectSettled(false)
		u.expectNever()
	})
	t.Run("deleted, written, by the next", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 2, nil)
		u.boxes.remove(t, u.box(0))
		u.expectSettled(true)
	})
	t.Run("deleted, and another of its name made, written, by the next", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 2, nil)
		u.boxes.remove(t, u.box(0))
		u.boxes.create(t, etcdtxn.NewClient(etcd.KV), u.box(0))
		u.expectSettled(true)
	})
	t.Run("deleted, and another of its name made, and nothing else is left", func(t *testing.T) {
		for _, loses := range []string{before, after} {
			u := newUnanswered(t, etcd, loses, 1, nil)
			u.boxes.remove(t, u.box(0))
			u.boxes.create(t, etcdtxn.NewClient(etcd.KV), u.box(0))
			if written, err := u.Settle(t.Context(), u.isOurs); written || !errors.Is(err, etcdtxn.ErrNotSettled) {
				t.Errorf("Settle() = %t, %v", written, err)
			}
			u.boxes.remove(t, u.box(0))
			if loses == after {
				u.claims.remove(t, u.name)
			}
		}
	})
	t.Run("nothing is left", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 2, nil)
		u.boxes.remove(t, u.box(0))
		u.boxes.remove(t, u.box(1))
		if written, err := u.Settle(t.Context(), u.isOurs); written || !errors.Is(err, etcdtxn.ErrNotSettled) {
			t.Errorf("Settle() = %t, %v", written, err)
		}
	})
	t.Run("it never had one", func(t *testing.T) {
		u := newUnanswered(t, etcd, before, 0, nil)
		if written, err := u.Settle(t.Context(), u.isOurs); written || !errors.Is(err, etcdtxn.ErrNotSettled) {
			t.Errorf("Settle() = %t, %v", written, err)
		}
	})
	t.Run("no answer to that either", func(t *testing.T) {
		for _, loses := range []string{before, after} {
			u := newUnanswered(t, etcd, before, 1, nil)
			late := u.kv.late
			u.kv.loses = loses
			if _, err := u.Settle(t.Context(), u.isOurs); !errors.Is(err, errLost) || errors.Is(err, etcdtxn.ErrNotSettled) {
				t.Errorf("Settle() = %v", err)
			}
			u.kv.loses, u.kv.late = "", late
			u.expectSettled(false)
			u.expectNever()
			u.boxes.remove(t, u.box(0))
		}
	})
	t.Run("it cannot be read", func(t *testing.T) {
		u := newUnanswered(t, etcd, before, 1, nil)
		if _, err := etcd.KV.Put(t.Context(), "/registry"+u.boxes.key(u.box(0)), "rubbish"); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Settle(t.Context(), u.isOurs); err == nil || errors.Is(err, etcdtxn.ErrNotSettled) {
			t.Errorf("Settle() = %v", err)
		}
	})
}

// TestSettleByAGuard: for a transaction that updates no object.
func TestSettleByAGuard(t *testing.T) {
	etcd, _ := start(t)
	guards := etcdtxn.NewGuards(etcd.Lease, "/guards/")
	t.Run("not written, and never will be", func(t *testing.T) {
		u := newUnanswered(t, etcd, before, 0, guards)
		u.expectSettled(false)
		u.expectSettled(false)
		u.expectNever()
		u.Release(guards)
	})
	t.Run("written", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 0, guards)
		unchanged(t, etcd.KV, func() { u.expectSettled(true); u.expectSettled(true) })
		u.Release(guards)
	})
	t.Run("written, and changed since", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 0, guards)
		u.claims.update(t, u.name, func(p *example.Pod) { p.Status.Phase = "Failed" })
		u.expectSettled(true)
		u.Release(guards)
	})
	t.Run("written, and deleted since", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 0, guards)
		u.claims.remove(t, u.name)
		u.expectSettled(true)
		u.Release(guards)
	})
	t.Run("no answer to that either", func(t *testing.T) {
		for _, loses := range []string{before, after} {
			u := newUnanswered(t, etcd, before, 0, guards)
			late := u.kv.late
			u.kv.loses = loses
			if _, err := u.Settle(t.Context(), u.isOurs); !errors.Is(err, errLost) || errors.Is(err, etcdtxn.ErrNotSettled) {
				t.Errorf("Settle() = %v", err)
			}
			u.kv.loses, u.kv.late = "", late
			u.expectSettled(false)
			u.expectNever()
			u.Release(guards)
		}
	})
	t.Run("the guard is gone", func(t *testing.T) {
		u := newUnanswered(t, etcd, after, 0, guards)
		if _, err := etcd.KV.Delete(t.Context(), "/guards/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		if written, err := u.Settle(t.Context(), u.isOurs); written || !errors.Is(err, etcdtxn.ErrNotSettled) {
			t.Errorf("Settle() = %t, %v", written, err)
		}
		u.Release(guards)
	})
	t.Run("no server leaves more of them than it has transactions at a time", func(t *testing.T) {
		newUnanswered(t, etcd, after, 0, guards).Release(guards)
		newUnanswered(t, etcd, after, 0, guards).Release(guards)
		if resp, err := etcd.KV.Get(t.Context(), "/guards/", clientv3.WithPrefix()); err != nil || len(resp.Kvs) != 1 {
			t.Errorf("%v, %v", resp.Kvs, err)
		}
	})
}

// guarded commits a transaction that creates a claim.
func guarded(t *testing.T, etcd *kubernetes.Client, guards *etcdtxn.Guards, name string, now time.Time) (*etcdtxn.Txn, error) {
	t.Helper()
	claims := newKind(t, etcd, kindOptions{resource: "/claims"})
	txn := etcdtxn.NewClient(etcd.KV).Txn()
	mustAdd(t, txn.Create(t.Context(), claims.Resource, claims.key(name), pod(name)))
	mustAdd(t, txn.Guard(t.Context(), guards, "token-of-"+name, now))
	return txn, txn.Commit(t.Context())
}

// TestGuardIsUsedAgain, whatever became of it: the transaction finds that only the guard
// has moved, and is committed again.
func TestGuardIsUsedAgain(t *testing.T) {
	etcd, _ := start(t)
	tests := map[string]struct {
		happens func(t *testing.T, guards *etcdtxn.Guards)
		later   time.Duration
	}{
		"nothing":                        {happens: func(*testing.T, *etcdtxn.Guards) {}},
		"a late commit":                  {happens: func(t *testing.T, guards *etcdtxn.Guards) { lateOne(t, etcd, guards) }},
		"the lease ends":                 {happens: func(t *testing.T, _ *etcdtxn.Guards) { revokeAll(t, etcd) }, later: time.Hour},
		"the lease ends before its time": {happens: func(t *testing.T, _ *etcdtxn.Guards) { revokeAll(t, etcd) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			guards := etcdtxn.NewGuards(etcd.Lease, "/guards/"+t.Name()+"/")
			name, now := strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"), time.Now()
			first, err := guarded(t, etcd, guards, name+"-1", now)
			if err != nil {
				t.Fatal(err)
			}
			first.Release(guards)
			tc.happens(t, guards)
			second, err := guarded(t, etcd, guards, name+"-2", now.Add(tc.later))
			if err != nil {
				t.Fatal(err)
			}
			if got := raw(t, etcd.KV, "/guards/"+t.Name()+"/1"); got == nil || string(got.Value) != "token-of-"+name+"-2" {
				t.Errorf("the guard is %v", got)
			}
			second.Release(guards)
			if _, err := guarded(t, etcd, guards, name+"-1", now); !errors.Is(err, etcdtxn.ErrConflict) {
				t.Errorf("a claim of the same name: %v", err)
			}
		})
	}
}

func revokeAll(t *testing.T, etcd *kubernetes.Client) {
	t.Helper()
	leases, err := etcd.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Leases {
		if _, err := etcd.Revoke(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// lateOne is a transaction that is given up before it comes to etcd.
func lateOne(t *testing.T, etcd *kubernetes.Client, guards *etcdtxn.Guards) {
	t.Helper()
	u := newUnanswered(t, etcd, before, 0, guards)
	u.Release(guards)
	if resp, err := u.kv.late.Commit(); err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
}

// TestGuardsAtTheSameTime are not the same.
func TestGuardsAtTheSameTime(t *testing.T) {
	etcd, _ := start(t)
	guards := etcdtxn.NewGuards(etcd.Lease, "/guards/")
	for i, loses := range []string{after, before} {
		t.Run(loses, func(t *testing.T) {
			u := newUnanswered(t, etcd, loses, 0, guards)
			newUnanswered(t, etcd, []string{before, after}[i], 1, guards)
			u.expectSettled(loses == after)
		})
	}
	leases, err := etcd.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("they have %v, %v", leases, err)
	}
	if left, err := etcd.TimeToLive(t.Context(), leases.Leases[0].ID, clientv3.WithAttachedKeys()); err != nil || len(left.Keys) != 4 || left.TTL < 1800 {
		t.Errorf("they live for %+v, %v", left, err)
	}
}

// TestGuardsEnd with their lease, whatever became of their transaction.
func TestGuardsEnd(t *testing.T) {
	etcd, _ := start(t)
	tests := map[string]func(t *testing.T, guards *etcdtxn.Guards) *etcdtxn.Txn{
		"written": func(t *testing.T, guards *etcdtxn.Guards) *etcdtxn.Txn {
			txn, err := guarded(t, etcd, guards, "mine", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return txn
		},
		"a conflict": func(t *testing.T, guards *etcdtxn.Guards) *etcdtxn.Txn {
			claims := newKind(t, etcd, kindOptions{resource: "/claims"})
			claims.create(t, etcdtxn.NewClient(etcd.KV), "taken")
			txn, err := guarded(t, etcd, guards, "taken", time.Now())
			if !errors.Is(err, etcdtxn.ErrConflict) {
				t.Fatal(err)
			}
			return txn
		},
		"settled, written": func(t *testing.T, guards *etcdtxn.Guards) *etcdtxn.Txn {
			u := newUnanswered(t, etcd, after, 0, guards)
			u.expectSettled(true)
			return u.Txn
		},
		"settled, not written": func(t *testing.T, guards *etcdtxn.Guards) *etcdtxn.Txn {
			u := newUnanswered(t, etcd, before, 0, guards)
			u.expectSettled(false)
			return u.Txn
		},
		"not settled": func(t *testing.T, guards *etcdtxn.Guards) *etcdtxn.Txn {
			return newUnanswered(t, etcd, before, 0, guards).Txn
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			prefix := "/guards/" + t.Name() + "/"
			guards := etcdtxn.NewGuards(etcd.Lease, prefix)
			end(t, guards).Release(guards)
			resp, err := etcd.KV.Get(t.Context(), prefix, clientv3.WithPrefix())
			if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease == 0 {
				t.Errorf("there are %v, %v, want one key with a lease", resp.Kvs, err)
			}
		})
	}
}

// TestLatePutOfAGuard: if etcd carries out the put of a guard late, it does not overwrite the token
// of a transaction.
func TestLatePutOfAGuard(t *testing.T) {
	etcd, _ := start(t)
	claims := newKind(t, etcd, kindOptions{resource: "/claims"})
	for _, again := range []bool{true, false} {
		t.Run(fmt.Sprintf("the same transaction: %t", again), func(t *testing.T) {
			kv := &forgetful{KV: etcd.KV, losesPut: true}
			guards := etcdtxn.NewGuards(etcd.Lease, "/guards/"+t.Name()+"/")
			begin := func(name string) *etcdtxn.Txn {
				txn := etcdtxn.NewClient(kv).Txn()
				mustAdd(t, txn.Create(t.Context(), claims.Resource, claims.key(name), pod(name)))
				mustAdd(t, txn.Guard(t.Context(), guards, "token-of-"+name, time.Now()))
				return txn
			}
			name := fmt.Sprint("put-", again)
			txn := begin(name)
			if err := txn.Commit(t.Context()); !errors.Is(err, errLost) || errors.Is(err, etcdtxn.ErrUnknownOutcome) {
				t.Fatalf("Commit() = %v, want that nothing was written", err)
			}
			if !again {
				txn.Release(guards)
				txn = begin(name)
			}
			kv.loses = after
			if err := txn.Commit(t.Context()); !errors.Is(err, etcdtxn.ErrUnknownOutcome) {
				t.Fatalf("Commit() = %v", err)
			}
			kv.loses = ""
			if err := kv.latePut(); err != nil {
				t.Fatal(err)
			}
			claims.remove(t, name)
			if written, err := txn.Settle(t.Context(), nil); !written || err != nil {
				t.Errorf("Settle() = %t, %v, want that it was written", written, err)
			}
			txn.Release(guards)
		})
	}
}

// TestGuardWithoutItsLease: if the lease of a guard has ended early, the transaction cannot be
// settled.
func TestGuardWithoutItsLease(t *testing.T) {
	etcd, _ := start(t)
	for _, loses := range []string{before, after} {
		t.Run(loses, func(t *testing.T) {
			u := newUnanswered(t, etcd, loses, 0, etcdtxn.NewGuards(etcd.Lease, "/guards/"+t.Name()+"/"))
			revokeAll(t, etcd)
			if loses == after {
				u.claims.remove(t, u.name)
			}
			for range 2 {
				if written, err := u.Settle(t.Context(), u.isOurs); written || !errors.Is(err, etcdtxn.ErrNotSettled) {
					t.Errorf("Settle() = %t, %v", written, err)
				}
			}
			if u.kv.late == nil {
				return
			}
			if resp, err := u.kv.late.Commit(); err == nil && resp.Succeeded {
				t.Error("the transaction that was late is written")
			}
		})
	}
}

// TestLeaseGuards: guards that an earlier version has left without a lease get one, and
// stay as they are until it ends.
func TestLeaseGuards(t *testing.T) {
	etcd, _ := start(t)
	const left, used, other = "/guards/one/1", "/guards/two/1", "/guardsmen"
	for _, key := range []string{left, other} {
		mustAdd(t, etcdPut(t, etcd.KV, key, "as it is"))
	}
	live := etcdtxn.NewGuards(etcd.Lease, "/guards/two/")
	txn, err := guarded(t, etcd, live, "mine", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]*mvccpb.KeyValue{left: raw(t, etcd.KV, left), used: raw(t, etcd.KV, used), other: raw(t, etcd.KV, other)}
	for range 2 { // the second time it finds nothing
		mustAdd(t, etcdtxn.LeaseGuards(t.Context(), etcd.Client, "/guards/"))
	}
	if is := raw(t, etcd.KV, left); is == nil || is.Lease == 0 || is.Version != 2 || string(is.Value) != "as it is" {
		t.Errorf("what was left is %v", is)
	}
	for _, key := range []string{used, other} {
		if is := raw(t, etcd.KV, key); is.ModRevision != before[key].ModRevision || is.Lease != before[key].Lease {
			t.Errorf("%s is written, too: %v", key, is)
		}
	}
	txn.Release(live)
	if leases, err := etcd.Leases(t.Context()); err != nil || len(leases.Leases) != 2 {
		t.Errorf("there are leases %v, %v, want that of the server and one more", leases, err)
	}
}

// TestNoRoomForAGuard: a transaction that is full goes without.
func TestNoRoomForAGuard(t *testing.T) {
	etcd, client := start(t)
	boxes := newKind(t, etcd, kindOptions{resource: "/boxes"})
	for n, want := range map[int]int{etcdtxn.MaxOps - 1: 1, etcdtxn.MaxOps: 0} {
		prefix := fmt.Sprintf("/guards-%d/", n)
		guards := etcdtxn.NewGuards(etcd.Lease, prefix)
		txn := client.Txn()
		for i := range n {
			name := fmt.Sprint("box-", n, "-", i)
			mustAdd(t, txn.Create(t.Context(), boxes.Resource, boxes.key(name), pod(name)))
		}
		mustAdd(t, txn.Guard(t.Context(), guards, "token", time.Now()))
		if err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if resp, err := etcd.KV.Get(t.Context(), prefix, clientv3.WithPrefix()); err != nil || len(resp.Kvs) != want {
			t.Errorf("%d objects have %d guards, %v", n, len(resp.Kvs), err)
		}
		if _, err := txn.Settle(t.Context(), nil); errors.Is(err, etcdtxn.ErrNotSettled) != (want == 0) {
			t.Errorf("of %d objects: Settle() = %v", n, err)
		}
		txn.Release(guards)
	}
}
