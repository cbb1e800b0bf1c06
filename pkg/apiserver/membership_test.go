// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

// patience is when a failing test gives up.
const patience = 2 * time.Minute

// newEtcd returns a client of an etcd for a test.
func newEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	etcd, err := embeddedetcd.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// member is a server in the list, run by a test.
type member struct {
	*membership
	lists chan []string
	stop  func()
}

func join(t *testing.T, client *clientv3.Client) *member {
	t.Helper()
	m := &member{lists: make(chan []string, 100)}
	m.membership = newMembership(client, "/test", runtime.ContentTypeProtobuf, func(self string, servers []string) {
		if self != m.self {
			t.Errorf("told as %s, want %s", self, m.self)
		}
		m.lists <- servers
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.run(ctx)
	}()
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
	return m
}

// sees waits until the member knows of exactly these servers.
func (m *member) sees(t *testing.T, servers ...*member) {
	t.Helper()
	var want []string
	for _, other := range servers {
		want = append(want, other.self)
	}
	slices.Sort(want)
	var last []string
	for deadline := time.After(patience); ; {
		select {
		case last = <-m.lists:
			if slices.Equal(last, want) {
				return
			}
		case <-deadline:
			t.Fatalf("sees %v, want %v", last, want)
		}
	}
}

func TestMembersComeAndGo(t *testing.T) {
	client := newEtcd(t)

	a := join(t, client)
	a.sees(t, a)
	b := join(t, client)
	a.sees(t, a, b)
	b.sees(t, a, b)

	// One that stops leaves at once, and not when its lease runs out.
	b.stop()
	a.sees(t, a)
	leases, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Leases) != 1 {
		t.Errorf("%d leases are left of one server", len(leases.Leases))
	}

	// One whose lease is lost counts as alone until it is back in the list.
	if _, err := client.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	a.sees(t)
	a.sees(t, a)
}

// losingKV holds the next transaction back and returns an error, as if etcd had not answered.
// late sends the transaction.
type losingKV struct {
	clientv3.KV
	loses bool
	late  func() error
}

func (kv *losingKV) Txn(ctx context.Context) clientv3.Txn {
	return &losingTxn{kv.KV.Txn(context.WithoutCancel(ctx)), kv} // late is sent after the call
}

type losingTxn struct {
	clientv3.Txn
	kv *losingKV
}

func (t *losingTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }

func (t *losingTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }

func (t *losingTxn) Commit() (*clientv3.TxnResponse, error) {
	if !t.kv.loses {
		return t.Txn.Commit()
	}
	t.kv.loses = false
	t.kv.late = func() error { _, err := t.Txn.Commit(); return err }
	return nil, errNoAnswer
}

var errNoAnswer = errors.New("no answer")

// The last entry that a server wrote stays in the list, also if etcd carries out an earlier write
// late.
func TestMembersSayTheLastThing(t *testing.T) {
	client := newEtcd(t)
	kv := &losingKV{KV: client.KV}
	client.KV = kv
	enter := func(m *membership) error {
		lease, err := client.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.enter(t.Context(), lease.ID)
		return err
	}
	say := func(what string) func(*membership) error {
		return func(m *membership) error { return m.Say(t.Context(), what) }
	}
	tests := map[string]struct {
		before      []func(*membership) error
		loses, last func(*membership) error
		want        string
	}{
		"another thing":           {before: []func(*membership) error{enter, say("a")}, loses: say("b"), last: say("c"), want: "c"},
		"what it had said before": {before: []func(*membership) error{enter, say("a")}, loses: say("b"), last: say("a"), want: "a"},
		"the same again":          {before: []func(*membership) error{enter, say("a")}, loses: say("b"), last: say("b"), want: "b"},
		"under another lease":     {before: []func(*membership) error{enter, say("a")}, loses: say("b"), last: enter, want: "b"},
		"entered twice":           {before: []func(*membership) error{say("a")}, loses: enter, last: enter, want: "a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMembership(client, "/test/"+name, runtime.ContentTypeProtobuf, func(string, []string) {})
			for _, step := range tc.before {
				if err := step(m); err != nil {
					t.Fatal(err)
				}
			}
			kv.loses = true
			if err := tc.loses(m); !errors.Is(err, errNoAnswer) {
				t.Fatalf("without an answer: %v", err)
			}
			if err := tc.last(m); err != nil {
				t.Fatal(err)
			}
			was, err := client.Get(t.Context(), m.prefix+m.self)
			if err != nil || len(was.Kvs) != 1 {
				t.Fatalf("it is not in the list: %v, %v", was, err)
			}
			if err := kv.late(); err != nil {
				t.Fatal(err)
			}
			is, err := client.Get(t.Context(), m.prefix+m.self)
			if err != nil || len(is.Kvs) != 1 || string(is.Kvs[0].Value) != tc.want || is.Kvs[0].Lease != was.Kvs[0].Lease {
				t.Errorf("the list has %v, %v, want %s under the same lease as %v", is, err, tc.want, was)
			}
		})
	}
	t.Run("it comes into the list after it said something", func(t *testing.T) {
		m := newMembership(client, "/test/late", runtime.ContentTypeProtobuf, func(string, []string) {})
		kv.loses = true
		if err := enter(m); !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		if err := say("a")(m); err != nil {
			t.Fatal(err)
		}
		if err := kv.late(); err != nil {
			t.Fatal(err)
		}
		if err := say("a")(m); err != nil {
			t.Fatal(err)
		}
		if said, self, err := m.Said(t.Context()); err != nil || said[self] != "a" {
			t.Errorf("the list has %v, %v", said, err)
		}
	})
}

// A session that lasted starts the pauses over: here they would be an hour.
func TestMembersComeBackAfterALongSession(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sessions := 0
	repeat(ctx, clock, wait.Backoff{Duration: time.Hour, Factor: 2, Steps: 5}, func(context.Context) {
		clock.SetTime(clock.Now().Add((memberTTL + 1) * time.Second))
		if sessions++; sessions == 5 {
			cancel()
		}
	})
	if sessions != 5 {
		t.Errorf("%d sessions", sessions)
	}
}

// Sessions that fail at once do not follow each other at once.
func TestMembersPauseAfterAShortSession(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	sessions := 0
	repeat(ctx, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), wait.Backoff{Duration: time.Hour, Factor: 2, Steps: 5},
		func(context.Context) { sessions++ })
	if sessions != 1 {
		t.Errorf("%d sessions", sessions)
	}
}
