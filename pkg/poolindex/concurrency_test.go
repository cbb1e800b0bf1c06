// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stocked is a Listener that sends a token for every sandbox.
type stocked chan struct{}

func (s stocked) Stocked(Pool) { s <- struct{}{} }

// TestOneCallerEach lets many callers take while the feed writes. A sandbox is
// never in the hands of two, and is never handed out again once it is bound.
func TestOneCallerEach(t *testing.T) {
	const sandboxes, callers = 5000, 64
	var (
		index = New()
		stock = make(stocked, 2*sandboxes+callers)
		feed  = NewFeed(index, stock, func() time.Time { return noon })

		owner  [sandboxes]atomic.Int32 // the caller that holds it, or -1 once it is bound
		bound  atomic.Int32
		all    = make(chan struct{}) // closed when every sandbox is bound
		events = make(chan int, sandboxes)
	)
	name := func(i int) string { return fmt.Sprint("sb-", i) }
	number := func(c Candidate) int {
		i, err := strconv.Atoi(c.Name[len("sb-"):])
		if err != nil {
			t.Error(err)
		}
		return i
	}
	// Sandbox i appears at 10i+1, has its status written at 10i+2, and is bound
	// at 10i+9.
	version := func(i, n int) string { return strconv.Itoa(10*i + n) }

	// Broken code must not keep the test waiting for ever.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	call := func(me int32) {
		random := rand.New(rand.NewPCG(uint64(me), 0))
		for {
			select {
			case <-all:
				return
			case <-ctx.Done():
				return
			case <-stock:
			}
			cs := index.Take(py, 1+random.IntN(3))
			for _, c := range cs {
				i := number(c)
				if !owner[i].CompareAndSwap(0, me) {
					t.Errorf("%s is handed to caller %d while it is with %d", c.Name, me, owner[i].Load())
				}
			}
			if random.IntN(3) == 0 {
				for _, c := range cs {
					owner[number(c)].Store(0)
				}
				index.Release(cs)
				for range cs {
					stock.Stocked(py)
				}
				continue
			}
			for _, c := range cs {
				i := number(c)
				owner[i].Store(-1)
				index.Bound([]Candidate{c}, uint64(10*i+9))
				events <- i
				if bound.Add(1) == sandboxes {
					close(all)
				}
			}
		}
	}

	var working sync.WaitGroup
	for i := range callers {
		working.Go(func() { call(int32(i + 1)) })
	}
	working.Go(func() { // the feed, which always lags behind
		for i := range sandboxes {
			feed.SandboxChanged(sandbox(name(i), version(i, 1)))
			if late := i - 10; late >= 0 {
				feed.SandboxChanged(sandbox(name(late), version(late, 2)))
			}
		}
		for late := sandboxes - 10; late < sandboxes; late++ {
			feed.SandboxChanged(sandbox(name(late), version(late, 2)))
		}
		for range sandboxes {
			select {
			case i := <-events:
				feed.SandboxChanged(sandbox(name(i), version(i, 1)))
				feed.SandboxDeleted(sandbox(name(i), version(i, 9)))
			case <-ctx.Done():
				return
			}
		}
	})
	working.Wait()
	if n := bound.Load(); n != sandboxes {
		t.Errorf("%d of %d sandboxes were bound", n, sandboxes)
	}
	mustBeEmpty(t, index)
}

// TestEverythingAtOnce calls every method from many goroutines, for the race
// detector.
func TestEverythingAtOnce(t *testing.T) {
	index := New()
	var working sync.WaitGroup
	for me := range uint64(8) {
		working.Go(func() {
			for i := range uint64(500) {
				c := Candidate{Pool: py, Name: fmt.Sprint("sb-", i%16), ResourceVersion: i, Revision: fmt.Sprint("r", i%3), Node: fmt.Sprint("n", i%2)}
				index.Upsert(c)
				index.MarkTarget(py, c.Revision)
				peek(index, py, 3)
				index.Suspensions.Suspend(py, c.Revision, index.Suspensions.Resumes())
				index.Suspensions.Suspended(py)
				cs := index.Take(py, 3)
				switch (i + me) % 4 {
				case 0:
					index.Bound(cs, i+1)
				case 1:
					index.Discard(cs...)
				default:
					index.Release(cs)
				}
				index.Remove("ns", fmt.Sprint("sb-", me), i)
				index.Retain(func(_, name string) bool { return name != c.Name }, i)
				index.Suspensions.ResumeAll()
				if n := index.Available(py); n < 0 || n > 16 {
					t.Errorf("Available() = %d", n)
				}
			}
		})
	}
	working.Go(func() { // one goroutine reports nodes
		index.Nodes.Replace(map[string]bool{"n0": true})
		for i := range 500 {
			index.Nodes.SetTakesPods("n1", i%2 == 0)
		}
	})
	working.Wait()
	index.Retain(func(_, _ string) bool { return false }, 1000)
	index.MarkTarget(py, "")
	mustBeEmpty(t, index)
}
