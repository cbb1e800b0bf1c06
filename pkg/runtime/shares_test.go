// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"sync"
	"testing"
)

func TestANamespaceLeavesRoomForOthers(t *testing.T) {
	s := NewShares(8)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 100 { // as of runtimes that do not answer
		waiting.Go(func() { _ = s.Begin(ctx, "greedy") })
	}
	for range 2 {
		// It would hang here if greedy had all.
		if err := s.Begin(t.Context(), "modest"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	waiting.Wait()
}

func TestTheNamespaceWithTheFewestIsNext(t *testing.T) {
	s := NewShares(2)
	enter(t, s, "first")
	enter(t, s, "second")
	greedy := make([]chan struct{}, 50)
	for i := range greedy {
		greedy[i] = s.enter("first")
	}
	late := s.enter("third")
	s.End("second")
	<-late
	for _, turn := range greedy {
		if !s.leave("first", turn) {
			t.Fatal("a call of a namespace with others went before the first of a namespace")
		}
	}
}

func TestNothingOfSharesIsLeft(t *testing.T) {
	s := NewShares(3)
	var calls sync.WaitGroup
	for i := range 200 {
		namespace := string(rune('a' + i%5))
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				cancel() // some give up, at any point
			}
			if s.Begin(ctx, namespace) == nil {
				s.End(namespace)
			}
		})
	}
	calls.Wait()
	if s.free != 3 || len(s.all) != 0 {
		t.Errorf("%d free, namespaces %v", s.free, s.all)
	}
}

func enter(t *testing.T, s *Shares, namespace string) {
	t.Helper()
	if err := s.Begin(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
}
