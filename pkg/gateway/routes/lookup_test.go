// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2btest"
)

// counting counts the requests of a client, and holds them back while gate is shut.
type counting struct {
	http.RoundTripper
	requests *atomic.Int32
	gate     <-chan struct{}
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	select {
	case <-c.gate:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return c.RoundTripper.RoundTrip(r)
}

// counted returns a client whose requests are counted, and wait for the gate.
func counted(t *testing.T, server *testutil.Server, gate <-chan struct{}) (versioned.Interface, *atomic.Int32) {
	t.Helper()
	requests := new(atomic.Int32)
	config := rest.CopyConfig(server.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, requests, gate} })
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, requests
}

func open() <-chan struct{} {
	gate := make(chan struct{})
	close(gate)
	return gate
}

// TestWhatTheWatchHasNotToldIsReadThrough: without any watch at all.
func TestWhatTheWatchHasNotToldIsReadThrough(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 2)
	sandbox := e2btest.Claim(t, server, set, nil)
	client, requests := counted(t, server, open())
	now := testclock.NewFakeClock(time.Now())
	table := routes.New(client, routes.Options{Clock: now})

	for range 3 {
		if got := find(t, table, idOf(sandbox)); got.UID != sandbox.UID || got.State != routes.Running {
			t.Fatalf("got %+v", got)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("three questions cost %d requests, want 2: what was read counts for a while", n)
	}
	e2btest.Pause(t, server, sandbox)
	now.Step(11 * time.Second)
	if got := find(t, table, idOf(sandbox)); got.State != routes.Paused {
		t.Errorf("what was read counts too long: %+v", got)
	}

	requests.Store(0)
	none := v1alpha1.E2BSandboxID(namespace, e2btest.Code())
	for range 5 {
		if _, err := table.Find(t.Context(), none); !errors.Is(err, routes.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("an id that does not exist costs %d requests, want 1", n)
	}
	now.Step(time.Second)
	if _, err := table.Find(t.Context(), none); !errors.Is(err, routes.ErrNotFound) || requests.Load() != 2 {
		t.Errorf("got %v after %d requests; it may exist by now", err, requests.Load())
	}

	requests.Store(0)
	for _, id := range []string{
		"", "x", "default--", "--eaaaaaaaaaaaaa", "default--caaaaaaaaaaaaa", "default--eaaaaaaaaaaaa", "default--eaaaaaaaaaaaaaa",
		"default--eaaaaaaaaaaaa1", "default--EAAAAAAAAAAAAA", "Default--eaaaaaaaaaaaaa", "a/b--eaaaaaaaaaaaaa", "..--eaaaaaaaaaaaaa",
		"a-namespace-of-more-than-forty-characters--eaaaaaaaaaaaaa", "default--eaaaaaaaaaaaaa\n",
	} {
		if _, err := table.Find(t.Context(), id); !errors.Is(err, routes.ErrNotFound) {
			t.Errorf("%q: got %v", id, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("ids that no sandbox can have cost %d requests", n)
	}
}

// TestAnIDLeadsToTheSandboxOfItsClaimOnly: not to one that has got its name.
func TestAnIDLeadsToTheSandboxOfItsClaimOnly(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	sandbox := e2btest.Claim(t, server, set, nil)
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(namespace)
	if err := sandboxes.Delete(t.Context(), sandbox.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := sandbox.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: sandbox.Name, Labels: map[string]string{"app": "another"}}
	if _, err := sandboxes.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	table := routes.New(server.Client, routes.Options{})
	if got, err := table.Find(t.Context(), idOf(sandbox)); !errors.Is(err, routes.ErrNotFound) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestGuessesDoNotPileUp: however many unknown ids are asked for, few are looked up at a time,
// and ids that are known are answered.
func TestGuessesDoNotPileUp(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	sandbox := e2btest.Claim(t, server, set, nil)
	gate := make(chan struct{})
	client, requests := counted(t, server, gate)
	table := routes.New(client, routes.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	const guesses = 1000
	refused := make(chan error, guesses)
	var wg sync.WaitGroup
	for range guesses {
		wg.Go(func() {
			_, err := table.Find(ctx, v1alpha1.E2BSandboxID(namespace, e2btest.Code()))
			if errors.Is(err, routes.ErrUnavailable) {
				refused <- err
			}
		})
	}
	for range guesses - 128 { // half of the slots of all
		if err := <-refused; errors.Is(err, routes.ErrNotFound) {
			t.Errorf("it is said not to exist: %v", err)
		}
	}
	if n := requests.Load(); n > 16 {
		t.Errorf("%d look-ups at a time, want at most 16", n)
	}
	cancel()
	wg.Wait()
	close(gate)
	if got := find(t, table, idOf(sandbox)); got.UID != sandbox.UID {
		t.Errorf("got %+v", got)
	}
}

// TestGuessesOfOneSource: guesses of one source cause no more requests than its limit, while a
// sandbox that the watch has not reported is found for another source.
func TestGuessesOfOneSource(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	sandbox := e2btest.Claim(t, server, set, nil)
	client, requests := counted(t, server, open())
	table := routes.New(client, routes.Options{Clock: testclock.NewFakeClock(time.Now())})
	const misses = 200
	here, there := lookups.WithSource(t.Context(), "10.0.0.1:1"), lookups.WithSource(t.Context(), "10.0.0.2:1")
	for i := range 2 * misses {
		want := routes.ErrNotFound
		if i >= misses {
			want = routes.ErrUnavailable
		}
		if _, err := table.Find(here, v1alpha1.E2BSandboxID(namespace, e2btest.Code())); !errors.Is(err, want) {
			t.Fatalf("guess %d: %v, want %v", i, err, want)
		}
	}
	if n := requests.Load(); n != misses {
		t.Errorf("%d guesses cost %d requests, want %d", 2*misses, n, misses)
	}
	if got, err := table.Find(there, idOf(sandbox)); err != nil || got.UID != sandbox.UID {
		t.Errorf("from another source: %+v, %v", got, err)
	}
}

// TestAnAPIServerThatIsAwaySaysNothingAboutAnID.
func TestAnAPIServerThatIsAwaySaysNothingAboutAnID(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	sandbox := e2btest.Claim(t, server, set, nil)
	table := routes.New(server.Client, routes.Options{AllowLoopback: true})
	server.Stop()
	if _, err := table.Find(t.Context(), idOf(sandbox)); !errors.Is(err, routes.ErrUnavailable) || errors.Is(err, routes.ErrNotFound) {
		t.Errorf("finding it: %v", err)
	}
	if _, err := table.Resolve(t.Context(), targetOf(sandbox)); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("resolving it: %v", err)
	}
}
