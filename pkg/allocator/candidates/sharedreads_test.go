// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func instantly(context.Context) error { return nil }

// TestReadsOfOtherKeysDoNotWait: while one read hangs, those of all other keys are
// answered.
func TestReadsOfOtherKeysDoNotWait(t *testing.T) {
	reads := newSharedReads()
	hanging, release := make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	defer slow.Wait()
	defer close(release)
	slow.Go(func() {
		_ = reads.join(context.Background(), "slow", time.Hour, func(context.Context) error {
			close(hanging)
			<-release
			return nil
		})
	})
	<-hanging
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range 1000 { // more than any table of locks has room for
		if err := reads.join(ctx, fmt.Sprint("namespace-", i), time.Hour, instantly); err != nil {
			t.Fatalf("the read of namespace-%d waited for that of another key: %v", i, err)
		}
	}
}

// TestSharedReads: callers share a read only if it begins after they came.
func TestSharedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := newSharedReads()
		began, atOnce := 0, 0
		end := make(chan error)
		read := func(context.Context) error {
			began++
			if atOnce++; atOnce > 1 {
				t.Error("two reads of a key run at the same time")
			}
			defer func() { atOnce-- }()
			return <-end
		}
		errs := make(chan error, 10)
		join := func(ctx context.Context) {
			go func() { errs <- reads.join(ctx, "key", time.Hour, read) }()
			synctest.Wait()
		}
		// expect waits until nothing changes any more. It expects that this many reads have
		// begun by then, and that want was answered to this many callers.
		expect := func(reads, answers int, want error) {
			t.Helper()
			synctest.Wait()
			if began != reads || len(errs) != answers {
				t.Fatalf("%d reads began and %d callers have an answer, want %d and %d", began, len(errs), reads, answers)
			}
			for range answers {
				if err := <-errs; !errors.Is(err, want) {
					t.Errorf("a caller got %v, want %v", err, want)
				}
			}
		}
		join(t.Context())
		leaving, leave := context.WithCancel(t.Context())
		join(leaving)
		join(t.Context())
		join(t.Context())
		leave()
		expect(1, 1, context.Canceled)
		end <- nil
		expect(2, 1, nil)
		join(t.Context()) // while the second read runs
		broken := errors.New("the second read fails")
		end <- broken
		expect(3, 2, broken)
		end <- nil
		expect(3, 1, nil)
		if len(reads.last) != 0 {
			t.Errorf("%d reads are kept", len(reads.last))
		}
	})
}

// TestSharedReadEnds at its timeout, so that the next one begins.
func TestSharedReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := newSharedReads()
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		if err := reads.join(t.Context(), "key", time.Minute, hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read that hangs: %v", err)
		}
		if err := reads.join(t.Context(), "key", time.Minute, instantly); err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
}
