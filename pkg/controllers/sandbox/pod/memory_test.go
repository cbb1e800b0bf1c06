// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var box = types.NamespacedName{Namespace: "ns", Name: "box"}

func TestExpectations(t *testing.T) {
	clock := clocktesting.NewFakeClock(now)
	x := newPodExpectations(clock)
	check := func(what string, want time.Duration) {
		t.Helper()
		if got := x.remaining(box); got != want {
			t.Errorf("%s: expected for %s, want %s", what, got, want)
		}
	}
	check("at first", 0)
	x.recordCreate(box, "a")
	check("created", awaitedTTL)
	x.recordSeen(box, "older")
	check("another was seen", awaitedTTL)
	clock.Step(time.Second)
	check("a second later", awaitedTTL-time.Second)
	x.recordSeen(box, "a")
	check("seen", 0)
	x.recordCreate(box, "b")
	x.forget(box)
	check("forgotten", 0)
	x.recordCreate(box, "c")
	clock.Step(awaitedTTL)
	check("never seen", 0)
	if len(x.items) != 0 {
		t.Errorf("remembers %v", x.items)
	}
}

func TestSuperseded(t *testing.T) {
	clock := clocktesting.NewFakeClock(now)
	s := newSuperseded(clock)
	check := func(what, version string, want time.Duration) {
		t.Helper()
		if got := s.remaining(box, version); got != want {
			t.Errorf("%s: waits for %s, want %s", what, got, want)
		}
	}
	check("at first", "1", 0)
	s.recordWrite(box, "1", "1")
	check("nothing changed", "1", 0)
	s.recordWrite(box, "1", "2")
	s.recordWrite(box, "2", "3")
	clock.Step(time.Second)
	check("before both writes", "1", awaitedTTL-time.Second)
	check("between them", "2", awaitedTTL-time.Second)
	check("after them", "3", 0)
	if len(s.items) != 0 {
		t.Errorf("remembers %v", s.items)
	}
	s.recordWrite(box, "3", "4")
	clock.Step(awaitedTTL)
	check("never seen", "3", 0)
	s.recordWrite(box, "3", "4")
	s.forget(box)
	if len(s.items) != 0 {
		t.Errorf("remembers %v", s.items)
	}
}

func TestBackoff(t *testing.T) {
	clock := clocktesting.NewFakeClock(now)
	b := newPodBackoff(clock)
	if got := b.remaining(box); got != 0 {
		t.Errorf("the first try waits %s", got)
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b.recordAttempt(box)
		if got := b.remaining(box); got != want*time.Second {
			t.Errorf("waits %s, want %s", got, want*time.Second)
		}
		clock.Step(want*time.Second - time.Millisecond)
		if got := b.remaining(box); got != time.Millisecond {
			t.Errorf("has %s left", got)
		}
		clock.Step(time.Millisecond)
		if got := b.remaining(box); got != 0 {
			t.Errorf("has %s left", got)
		}
	}
	b.forget(box)
	b.recordAttempt(box)
	if got := b.remaining(box); got != time.Second {
		t.Errorf("waits %s after a fresh start", got)
	}
}
