// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/share"
)

// takeAll takes places for a key until it gets no more.
func takeAll(p *share.Places, key string) (releases []func()) {
	for {
		release, ok := p.Take(key)
		if !ok {
			return releases
		}
		releases = append(releases, release)
	}
}

func TestAKeyLeavesAsMuchAsItHas(t *testing.T) {
	places := share.New(100, 1000)
	first := takeAll(places, "first")
	if len(first) != 50 {
		t.Errorf("one key alone has %d of 100, want 50", len(first))
	}
	second := takeAll(places, "second")
	if len(second) != 25 {
		t.Errorf("the next has %d, want 25", len(second))
	}
	// It was there first, but gets nothing new until both have the same.
	for _, release := range first[:20] {
		release()
	}
	first = append(first[20:], takeAll(places, "first")...)
	second = append(second, takeAll(places, "second")...)
	if len(first) < 30 || len(second) < 30 || len(first)+len(second) > 70 {
		t.Errorf("two that want everything have %d and %d of 100", len(first), len(second))
	}
	for _, release := range append(first, second...) {
		release()
		release()
	}
	if held := places.Held(); held != 0 {
		t.Errorf("%d places are held when all were given back", held)
	}
	if again := takeAll(places, "third"); len(again) != 50 {
		t.Errorf("a place is lost or made: %d, want 50", len(again))
	}
}

func TestNobodyIsShutOut(t *testing.T) {
	places := share.New(64, 64)
	for i := range 7 {
		if key := fmt.Sprint(i); len(takeAll(places, key)) == 0 {
			t.Errorf("key %s gets nothing", key)
		}
	}
}

func TestABoundForEachKey(t *testing.T) {
	places := share.New(100, 3)
	for _, key := range []string{"a", "b"} {
		if n := len(takeAll(places, key)); n != 3 {
			t.Errorf("key %s has %d, want 3", key, n)
		}
	}
	one := share.New(1, 1)
	if n := len(takeAll(one, "a")); n != 1 {
		t.Errorf("the only place was taken %d times", n)
	}
	if _, ok := one.Take("b"); ok {
		t.Error("there was no place left")
	}
}

func TestPlacesOfManyAtOnce(t *testing.T) {
	places := share.New(20, 5)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 1000 {
				if release, ok := places.Take(fmt.Sprint(i % 4)); ok {
					release()
				}
			}
		})
	}
	wg.Wait()
	if held := places.Held(); held != 0 {
		t.Errorf("%d places are held", held)
	}
}
