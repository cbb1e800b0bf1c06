// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

func TestAllow(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	l := New(Options{Rate: 2, Burst: 3, Clock: clk})
	a, b := apikeys.Caller{Team: "t", KeyID: "a"}, apikeys.Caller{Team: "t", KeyID: "b"}
	count := func(caller apikeys.Caller, tries int) (allowed int, last time.Duration) {
		for range tries {
			ok, retryAfter := l.Allow(caller)
			if ok {
				allowed++
			}
			last = retryAfter
		}
		return allowed, last
	}
	// What is refused costs nothing: the time to wait does not grow.
	if allowed, wait := count(a, 50); allowed != 3 || wait != time.Second/2 {
		t.Errorf("allowed %d at once, then %v", allowed, wait)
	}
	if allowed, _ := count(b, 50); allowed != 3 {
		t.Errorf("allowed %d of another key", allowed)
	}
	clk.Step(time.Second / 2)
	if allowed, _ := count(a, 50); allowed != 1 {
		t.Errorf("allowed %d after half a second", allowed)
	}
	// A team with many keys has the limit of ten of them.
	clk.Step(-time.Second / 2)
	l = New(Options{Rate: 2, Burst: 3, Clock: clk})
	sum := 0
	for i := range 100 {
		allowed, _ := count(apikeys.Caller{Team: "t", KeyID: fmt.Sprint(i)}, 1)
		sum += allowed
	}
	if sum != 30 {
		t.Errorf("allowed %d of a team", sum)
	}
	if allowed, _ := count(apikeys.Caller{Team: "u", KeyID: "u"}, 1); allowed != 1 {
		t.Error("another team is refused")
	}
	// The team's refusal cost the key nothing.
	clk.Step(time.Second)
	if allowed, _ := count(apikeys.Caller{Team: "t", KeyID: "99"}, 50); allowed != 3 {
		t.Errorf("allowed %d of a key whose team was at its limit", allowed)
	}
}

func TestNoLimit(t *testing.T) {
	l := New(Options{})
	for range 1000 {
		if ok, wait := l.Allow(apikeys.Caller{Team: "t", KeyID: "a"}); !ok || wait != 0 {
			t.Fatalf("refused for %v", wait)
		}
	}
}

func TestBounded(t *testing.T) {
	l := New(Options{Rate: 1, Burst: 1, Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))})
	for i := range maxBuckets + 100 {
		name := fmt.Sprint(i)
		l.Allow(apikeys.Caller{Team: name, KeyID: name})
	}
	if l.keys.Len() != maxBuckets || l.teams.Len() != maxBuckets {
		t.Errorf("remembers %d keys and %d teams", l.keys.Len(), l.teams.Len())
	}
}
