// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package flight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/flight"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// awaitWaiters waits until n wait for the work of key a.
func awaitWaiters(t *testing.T, group *flight.Group[int], n int) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := group.Waiters("a"); got != n {
			return fmt.Errorf("%d wait, want %d", got, n)
		}
		return nil
	})
}

func TestManyShareOnePieceOfWork(t *testing.T) {
	var group flight.Group[int]
	var runs atomic.Int32
	release := make(chan struct{})
	work := func(ctx context.Context) (int, error) {
		runs.Add(1)
		<-release
		return 7, ctx.Err()
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if got, err := group.Do(t.Context(), "a", work); got != 7 || err != nil {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
	awaitWaiters(t, &group, 10)
	if got, err := group.Do(t.Context(), "b", func(context.Context) (int, error) { return 8, nil }); got != 8 || err != nil {
		t.Errorf("work for another key: %d, %v", got, err)
	}
	close(release)
	wg.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("%d pieces of work, want 1", n)
	}
}

func TestTheErrorIsShared(t *testing.T) {
	var group flight.Group[string]
	broken := errors.New("broken")
	if _, err := group.Do(t.Context(), "a", func(context.Context) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestAPanicIsAnError(t *testing.T) {
	var group flight.Group[string]
	_, err := group.Do(t.Context(), "a", func(context.Context) (string, error) { panic("broken") })
	if panicked, ok := errors.AsType[*flight.PanicError](err); !ok || panicked.Recovered != "broken" || len(panicked.Stack) == 0 {
		t.Errorf("got %v", err)
	}
}

func TestOneWhoGivesUpDoesNotEndTheWorkOfOthers(t *testing.T) {
	var group flight.Group[int]
	release := make(chan struct{})
	work := func(ctx context.Context) (int, error) {
		<-release
		return 1, ctx.Err()
	}
	ctx, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := group.Do(ctx, "a", work)
		first <- err
	}()
	awaitWaiters(t, &group, 1)
	go func() {
		_, err := group.Do(t.Context(), "a", work)
		second <- err
	}()
	awaitWaiters(t, &group, 2)
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first got %v", err)
	}
	close(release)
	if err := <-second; err != nil {
		t.Errorf("the second got %v", err)
	}
}

func TestTheLastWhoGivesUpEndsTheWork(t *testing.T) {
	var group flight.Group[int]
	ctx, cancel := context.WithCancel(t.Context())
	ended := false
	_, err := group.Do(ctx, "a", func(ctx context.Context) (int, error) {
		cancel()
		<-ctx.Done()
		ended = true
		return 0, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || !ended {
		t.Errorf("got %v, and the work has ended: %t", err, ended)
	}
	if got, err := group.Do(t.Context(), "a", func(context.Context) (int, error) { return 3, nil }); got != 3 || err != nil {
		t.Errorf("new work: %d, %v", got, err)
	}
}
