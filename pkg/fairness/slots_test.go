// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// takeAll takes slots for a key until it gets no more.
func takeAll(p *fairness.Slots, key string) (releases []func()) {
	for {
		release, ok := p.Take(key)
		if !ok {
			return releases
		}
		releases = append(releases, release)
	}
}

func TestAKeyLeavesAsMuchAsItHas(t *testing.T) {
	slots := fairness.NewSlots(100, 1000)
	first := takeAll(slots, "first")
	if len(first) != 50 {
		t.Errorf("one key alone has %d of 100, want 50", len(first))
	}
	second := takeAll(slots, "second")
	if len(second) != 25 {
		t.Errorf("the next has %d, want 25", len(second))
	}
	// It was there first, but gets nothing new until both have the same.
	for _, release := range first[:20] {
		release()
	}
	first = append(first[20:], takeAll(slots, "first")...)
	second = append(second, takeAll(slots, "second")...)
	if len(first) < 30 || len(second) < 30 || len(first)+len(second) > 70 {
		t.Errorf("two that want everything have %d and %d of 100", len(first), len(second))
	}
	for _, release := range append(first, second...) {
		release()
		release()
	}
	if held := slots.Held(); held != 0 {
		t.Errorf("%d slots are held when all were given back", held)
	}
	if again := takeAll(slots, "third"); len(again) != 50 {
		t.Errorf("a slot is lost or made: %d, want 50", len(again))
	}
}

func TestNobodyIsShutOut(t *testing.T) {
	slots := fairness.NewSlots(64, 64)
	for i := range 7 {
		if key := fmt.Sprint(i); len(takeAll(slots, key)) == 0 {
			t.Errorf("key %s gets nothing", key)
		}
	}
}

func TestABoundForEachKey(t *testing.T) {
	slots := fairness.NewSlots(100, 3)
	for _, key := range []string{"a", "b"} {
		if n := len(takeAll(slots, key)); n != 3 {
			t.Errorf("key %s has %d, want 3", key, n)
		}
	}
	one := fairness.NewSlots(1, 1)
	if n := len(takeAll(one, "a")); n != 1 {
		t.Errorf("the only slot was taken %d times", n)
	}
	if _, ok := one.Take("b"); ok {
		t.Error("there was no slot left")
	}
}

func TestPlacesOfManyAtOnce(t *testing.T) {
	slots := fairness.NewSlots(20, 5)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 1000 {
				if release, ok := slots.Take(fmt.Sprint(i % 4)); ok {
					release()
				}
				if release, err := slots.Wait(t.Context(), fmt.Sprint(i%4)); err == nil {
					release()
				}
			}
		})
	}
	wg.Wait()
	if held := slots.Held(); held != 0 {
		t.Errorf("%d slots are held", held)
	}
}

// TestThoseWhoWait: a key whose requests wait leaves slots to others, what becomes free goes to
// the key that has the fewest, and who gives up takes nothing.
func TestThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(8, 8)
		ctx, cancel := context.WithCancel(t.Context())
		var greedy sync.WaitGroup
		for range 100 {
			greedy.Go(func() {
				if release, err := slots.Wait(ctx, "greedy"); err == nil {
					<-ctx.Done()
					release()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if held := slots.Held(); held != 4 {
			t.Errorf("one key has %d of 8", held)
		}
		var others []func()
		for i := range 4 {
			release, err := slots.Wait(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, release)
		}
		late := make(chan func(), 1)
		go func() {
			release, err := slots.Wait(t.Context(), "late")
			if err != nil {
				t.Error(err)
			}
			late <- release
		}()
		synctest.Wait()
		others[0]()
		synctest.Wait()
		select {
		case release := <-late:
			others[0] = release
		default:
			t.Error("what became free was not given to the key without a slot")
		}
		cancel()
		greedy.Wait()
		for _, release := range others {
			release()
		}
		if held := slots.Held(); held != 0 {
			t.Errorf("%d slots are held", held)
		}
		if again := takeAll(slots, "again"); len(again) != 4 {
			t.Errorf("a slot is lost or made: %d, want 4", len(again))
		}
		if _, err := slots.Wait(ctx, "gone"); !errors.Is(err, context.Canceled) {
			t.Errorf("one that is gone: %v", err)
		}
	})
}

// TestTheKeyWithTheFewestIsNext: not the one that has waited longest. Of two with as many, it is the one that got one the
// longest ago or never.
func TestTheKeyWithTheFewestIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(2, 2)
		order := make(chan string, 10)
		releases := make(chan func(), 10)
		enter := func(key string) {
			go func() {
				release, err := slots.Wait(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				order <- key
				releases <- release
			}()
			synctest.Wait()
		}
		for _, key := range []string{"first", "second", "first", "first", "third", "fourth", "second"} {
			enter(key)
		}
		for range 7 {
			synctest.Wait()
			(<-releases)()
		}
		close(order)
		var got []string
		for key := range order {
			got = append(got, key)
		}
		// Each slot that is given back leaves its key with none.
		want := []string{"first", "second", "third", "fourth", "first", "second", "first"}
		if !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

// TestSlotsTakenTogether: several slots are given together, as soon as the key may have all of them, and are released together.
func TestSlotsTakenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(16, 8)
		one, ok := slots.Take("a")
		if !ok {
			t.Fatal("no slot of 16")
		}
		got := make(chan func())
		go func() {
			release, err := slots.WaitFor(t.Context(), "a", 8)
			if err != nil {
				t.Error(err)
			}
			got <- release
		}()
		synctest.Wait()
		if held := slots.Held(); held != 1 {
			t.Errorf("%d slots are held while a key waits for more than it may have", held)
		}
		if other, err := slots.WaitFor(t.Context(), "b", 8); err != nil {
			t.Error(err)
		} else {
			other()
		}
		one()
		release := <-got
		if held := slots.Held(); held != 8 {
			t.Errorf("%d slots are held, want 8", held)
		}
		release()
		release()
		if held := slots.Held(); held != 0 {
			t.Errorf("%d slots are held in the end", held)
		}
	})
}

// TestWaitersForSeveralSlots: one who waits for more than are free is not passed over by others that have slots, nor
// keeps those behind it waiting when it gives up.
func TestWaitersForSeveralSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(16, 16)
		held := takeAll(slots, "a")
		held = append(held, takeAll(slots, "b")...)
		waits := func(ctx context.Context, key string, n int, got *bool) {
			go func() {
				release, err := slots.WaitFor(ctx, key, n)
				if *got = err == nil; *got {
					<-t.Context().Done()
					release()
				}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var large, behind, other bool
		waits(ctx, "c", 8, &large)
		waits(t.Context(), "c", 1, &behind)
		waits(t.Context(), "a", 1, &other)
		for _, release := range held[:3] {
			release()
		}
		synctest.Wait()
		if large || behind || other {
			t.Errorf("with too few slots for the first that waits: %t, behind it %t, another %t", large, behind, other)
		}
		cancel()
		synctest.Wait()
		if large || !behind {
			t.Errorf("when the first has given up: %t, behind it %t", large, behind)
		}
	})
}

// TestSlotsInTurns: a key gets a slot soon although others have many calls that have waited for longer.
func TestSlotsInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairness.NewSlots(2, 1)
		type gave struct {
			key     string
			release func()
		}
		given := make(chan gave)
		wait := func(key string) {
			if release, err := slots.Wait(t.Context(), key); err != nil {
				t.Error(err)
			} else {
				given <- gave{key, release}
			}
		}
		const calls = 50
		for _, key := range []string{"a", "b"} {
			for range calls {
				go wait(key)
			}
		}
		synctest.Wait()
		go wait("late")
		synctest.Wait()
		for n := range 2*calls + 1 {
			synctest.Wait() // all that have a slot have said so
			g := <-given
			if g.key == "late" && n > 4 {
				t.Errorf("it got its slot after %d others", n)
			}
			g.release()
		}
	})
}
