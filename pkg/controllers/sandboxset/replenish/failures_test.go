// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestFailures(t *testing.T) {
	type look struct {
		after    time.Duration // since the look before
		outcome  outcome
		revision string
		want     time.Duration
	}
	const s = time.Second
	// made is when a sandbox was created, in seconds.
	made := func(second int) time.Time { return epoch.Add(time.Duration(second) * s) }
	ended := func(after, want time.Duration) look {
		return look{after, outcome{ended: 1, newestEnded: made(5)}, current, want}
	}
	nothing := func(after, want time.Duration) look { return look{after, outcome{}, current, want} }
	works := func(second int) outcome { return outcome{newestAvailable: made(second)} }
	both := func(end, available int) outcome {
		return outcome{ended: 3, newestEnded: made(end), newestAvailable: made(available)}
	}
	tests := map[string][]look{
		"none":                   {nothing(0, 0), {s, works(5), current, 0}},
		"some end, newer do not": {{0, both(5, 6), current, 0}},
		"some of a round end":    {{0, both(5, 5), current, 0}},
		"doubles":                {ended(0, s), ended(s, 2*s), ended(2*s, 4*s), ended(4*s, 8*s)},
		"up to a minute": {ended(0, s), ended(s, 2*s), ended(2*s, 4*s), ended(4*s, 8*s), ended(8*s, 16*s),
			ended(16*s, 32*s), ended(32*s, 60*s), ended(60*s, 60*s)},
		"more of the same round":              {ended(0, s), ended(s/4, 3*s/4), ended(s/4, s/2), ended(s/2, 2*s)},
		"pause goes on when they are removed": {ended(0, s), nothing(s/2, s/2), nothing(s/2, 0), ended(0, 2*s)},
		"a success ends it":                   {ended(0, s), {s / 2, works(5), current, 0}, ended(0, s)},
		"older ones prove nothing": {
			{0, both(5, 1), current, s}, {s / 2, works(1), current, s / 2}, {s / 2, works(1), current, 0}, {0, both(7, 1), current, 2 * s},
			{2 * s, works(6), current, 0}, {0, both(9, 6), current, 4 * s}, {0, works(9), current, 0}, ended(0, s),
		},
		"another template ends it":   {ended(0, s), ended(s, 2*s), {0, outcome{}, older, 0}, {0, both(5, 1), older, s}},
		"ending in another template": {ended(0, s), ended(s, 2*s), {0, both(1, 0), older, s}},
	}
	for name, looks := range tests {
		t.Run(name, func(t *testing.T) {
			f, now := newFailures(), epoch
			for i, l := range looks {
				now = now.Add(l.after)
				if got := f.look(pool1, l.revision, l.outcome, now); got != l.want {
					t.Errorf("look %d: pause %s, want %s", i, got, l.want)
				}
			}
		})
	}
}

func TestFailuresSucceeded(t *testing.T) {
	f := newFailures()
	f.look(pool1, current, outcome{ended: 1, newestEnded: epoch}, epoch)
	f.succeeded(pool1, older)
	f.succeeded(pool2, current)
	if got := f.look(pool1, current, outcome{}, epoch); got != time.Second {
		t.Errorf("pause %s after a success of others", got)
	}
	f.succeeded(pool1, current)
	if got := f.look(pool1, current, outcome{}, epoch); got != 0 {
		t.Errorf("pause %s after a success", got)
	}
}

func TestOutcome(t *testing.T) {
	o := observation{set: makeSet(0), goal: goalOf(current), now: epoch, sandboxes: sandboxes(
		starting("failed").phase(v1alpha1.SandboxFailed).age(3*time.Minute),
		starting("succeeded").phase(v1alpha1.SandboxSucceeded).age(2*time.Minute),
		starting("terminating").phase(v1alpha1.SandboxTerminating).age(0),
		starting("older").phase(v1alpha1.SandboxFailed).age(0).revision(older),
		available("shutdown").shutdown(epoch).age(0),
		available("available").age(time.Hour), available("young").age(time.Minute), available("oldest").age(2*time.Hour),
		olderAvailable("other").age(0), starting("new").age(0),
	)}
	want := outcome{ended: 2, newestEnded: epoch.Add(-2 * time.Minute), newestAvailable: epoch.Add(-time.Minute)}
	if got := o.census().outcome; got != want {
		t.Errorf("outcome %+v, want %+v", got, want)
	}
}

// A process that ends soon runs for a moment as well.
func TestWorks(t *testing.T) {
	for name, test := range map[string]struct {
		sandbox builder
		want    bool
	}{
		"starting":         {starting("a"), false},
		"runs":             {starting("a").phase(v1alpha1.SandboxRunning).ip("127.1.1.1"), false},
		"not ready":        {available("a").ready(false), false},
		"available":        {available("a"), true},
		"ready, but ended": {available("a").phase(v1alpha1.SandboxSucceeded), false},
	} {
		if got := works(test.sandbox.Sandbox); got != test.want {
			t.Errorf("%s: works: %v", name, got)
		}
	}
	claimed := available("a")
	claimed.OwnerReferences = nil
	if !works(claimed.Sandbox) {
		t.Error("one that was claimed at once does not count")
	}
}
