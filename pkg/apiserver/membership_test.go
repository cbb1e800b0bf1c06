// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/embeddedetcd"
)

// patience is when a failing test gives up.
const patience = 2 * time.Minute

// member is a server in the list, run by a test.
type member struct {
	*membership
	lists chan []string
	stop  func()
}

func join(t *testing.T, client *clientv3.Client) *member {
	t.Helper()
	m := &member{lists: make(chan []string, 100)}
	m.membership = newMembership(client, "/test", func(self string, servers []string) {
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

// sees waits until the member was told of exactly these servers.
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
