// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var errMissing = errors.New("missing")

// reader counts reads, which wait for hold if there is one.
type reader struct {
	hold chan struct{}

	mu                   sync.Mutex
	reads, running, most int
}

func (r *reader) read(err error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r.mu.Lock()
		r.reads++
		r.running++
		r.most = max(r.most, r.running)
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.running--
		}()
		if r.hold != nil {
			select {
			case <-r.hold:
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		return "found", err
	}
}

func from(ctx context.Context, host string) context.Context { return WithSource(ctx, host+":1") }

// TestMisses: a source causes no more misses than its limit, however many ids it asks for.
// What is found is free, and other sources have a limit of their own.
func TestMisses(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	g := New[string](Limits{AtOnce: 4, Misses: 5, MissesPerSecond: 2, Clock: clk})
	here, there := from(t.Context(), "10.0.0.1"), from(t.Context(), "10.0.0.2")
	var r reader
	guess := func(ctx context.Context, n int) (refused int) {
		for i := range n {
			if _, err := g.Do(ctx, fmt.Sprint(i), r.read(errMissing)); errors.Is(err, ErrRefused) {
				refused++
			} else if !errors.Is(err, errMissing) {
				t.Errorf("a guess: %v", err)
			}
		}
		return refused
	}
	for i := range 100 {
		if _, err := g.Do(here, fmt.Sprint("there is ", i), r.read(nil)); err != nil {
			t.Fatal(err)
		}
	}
	r.reads = 0
	if refused := guess(here, 100); refused != 95 || r.reads != 5 {
		t.Errorf("%d of 100 guesses are refused, and %d read", refused, r.reads)
	}
	if found, err := g.Do(there, "new", r.read(nil)); err != nil || found != "found" {
		t.Errorf("another source: %q, %v", found, err)
	}
	clk.Step(time.Second)
	if refused := guess(here, 100); refused != 98 {
		t.Errorf("%d of 100 guesses are refused a second later", refused)
	}
}

// TestMissesOfAll: however many sources there are, together they cause no more misses than ten.
func TestMissesOfAll(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	g := New[string](Limits{AtOnce: 4, Misses: 5, MissesPerSecond: 2, Clock: clk})
	var r reader
	guess := func() {
		for i := range 256 {
			source := from(t.Context(), fmt.Sprintf("[2001:db8:0:%x::1]", i))
			for range 5 {
				if _, err := g.Do(source, "none", r.read(errMissing)); !errors.Is(err, errMissing) && !errors.Is(err, ErrRefused) {
					t.Errorf("a guess: %v", err)
				}
			}
		}
	}
	for _, want := range []int{50, 70} {
		guess()
		if r.reads != want {
			t.Errorf("%d reads, want %d", r.reads, want)
		}
		clk.Step(time.Second)
	}
	if found, err := g.Do(from(t.Context(), "10.0.0.1"), "new", r.read(nil)); err != nil || found != "found" {
		t.Errorf("when others have stopped: %q, %v", found, err)
	}
}

// TestWaiting: however many requests of however many sources come, one after the other, few wait,
// few of these read, and there is a slot for another source.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, misses = 4, 20
		g := New[string](Limits{AtOnce: atOnce, Misses: misses, Clock: clock.RealClock{}})
		r := reader{hold: make(chan struct{})}
		const sources, ofEach = 20, 100
		refused := make(chan error, sources*ofEach)
		var waiting sync.WaitGroup
		for n := range sources {
			ctx := from(t.Context(), fmt.Sprintf("10.0.1.%d", n))
			for i := range ofEach {
				waiting.Go(func() {
					// Many ask for the same id, too.
					if _, err := g.Do(ctx, fmt.Sprint(i/2), r.read(errMissing)); errors.Is(err, ErrRefused) {
						refused <- err
					}
				})
				synctest.Wait()
			}
		}
		if waits := cap(refused) - len(refused); waits != 2*maxWaitingOfSource+sources-2 || r.reads != atOnce {
			t.Errorf("%d requests wait, and %d read", waits, r.reads)
		}
		found := make(chan error, 1)
		go func() {
			_, err := g.Do(from(t.Context(), "10.0.0.2"), "new", r.read(nil))
			found <- err
		}()
		synctest.Wait()
		close(r.hold)
		if err := <-found; err != nil {
			t.Errorf("another source: %v", err)
		}
		waiting.Wait()
		if r.reads > sources*(misses+atOnce) || r.most != atOnce {
			t.Errorf("%d reads, %d at a time", r.reads, r.most)
		}
	})
}

// TestGivenUp: a client that goes away before its read has ended has missed all the same.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](Limits{AtOnce: 4, Misses: 3, Clock: clock.RealClock{}})
		r := reader{hold: make(chan struct{})}
		for i := range 100 {
			ctx, cancel := context.WithCancel(from(t.Context(), "10.0.0.1"))
			ended := make(chan error, 1)
			go func() {
				_, err := g.Do(ctx, fmt.Sprint(i), r.read(nil))
				ended <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-ended; err == nil {
				t.Error("it was found")
			}
		}
		if r.reads != 3 {
			t.Errorf("%d reads, want 3", r.reads)
		}
	})
}
