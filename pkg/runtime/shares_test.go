// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"sync"
	"testing"
)

func TestANamespaceLeavesRoomForOthers(t *testing.T) {
	s := newShares(8)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 100 { // as of runtimes that do not answer
		waiting.Go(func() { _ = s.begin(ctx, "greedy") })
	}
	for range 2 {
		// It would hang here if greedy had all.
		if err := s.begin(t.Context(), "modest"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	waiting.Wait()
}

func TestTheNamespaceWithTheFewestIsNext(t *testing.T) {
	s := newShares(2)
	enter(t, s, "first")
	enter(t, s, "second")
	greedy := make([]chan struct{}, 50)
	for i := range greedy {
		greedy[i] = s.enter("first")
	}
	late := s.enter("third")
	s.end("second")
	<-late
	for _, turn := range greedy {
		if !s.leave("first", turn) {
			t.Fatal("a call of a namespace with others went before the first of a namespace")
		}
	}
}

func TestNothingOfSharesIsLeft(t *testing.T) {
	s := newShares(3)
	var calls sync.WaitGroup
	for i := range 200 {
		namespace := string(rune('a' + i%5))
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				cancel() // some give up, at any point
			}
			if s.begin(ctx, namespace) == nil {
				s.end(namespace)
			}
		})
	}
	calls.Wait()
	if s.free != 3 || len(s.all) != 0 {
		t.Errorf("%d free, namespaces %v", s.free, s.all)
	}
}

func enter(t *testing.T, s *shares, namespace string) {
	t.Helper()
	if err := s.begin(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
}
