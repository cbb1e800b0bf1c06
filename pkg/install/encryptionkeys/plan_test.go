// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var usual = rules{atRest: true, rotation: 90 * day, overlap: 10 * time.Minute, mounted: true}

// keyOf returns a key that was made so long after the start.
func keyOf(after time.Duration) key { return newKey(start.Add(after)) }

func TestNext(t *testing.T) {
	t.Parallel()
	first, second := keyOf(0), keyOf(90*day)
	off, unmounted := usual, usual
	off.atRest, unmounted.mounted = false, false
	two := func(plain bool, published time.Duration, keys ...key) state {
		s := state{config: config{keys: keys, plain: plain}}
		if published >= 0 {
			s.published = start.Add(published)
		}
		return s
	}
	const never = -1
	for name, tc := range map[string]struct {
		s     state
		after time.Duration
		rules rules
		want  step
		// keys are the names that follow, in their order; nil is not compared.
		keys  []key
		plain bool
	}{
		"nothing":                             {s: state{config: config{plain: true}, absent: true}, rules: usual, want: stepFirst},
		"nothing, and old servers":            {s: state{config: config{plain: true}, absent: true}, rules: unmounted, want: stepNext, plain: true},
		"it was off":                          {s: state{config: config{plain: true}}, rules: usual, want: stepNext, plain: true},
		"not wanted":                          {s: state{config: config{plain: true}}, rules: off, want: stepNone, keys: []key{}, plain: true},
		"plain, too early":                    {s: two(true, 0, first), after: time.Minute, rules: usual, want: stepNone, keys: []key{first}, plain: true},
		"plain, not known since when":         {s: two(true, never, first), after: day, rules: usual, want: stepNone, keys: []key{first}, plain: true},
		"plain, old servers run":              {s: two(true, 0, first), after: day, rules: unmounted, want: stepNone, keys: []key{first}, plain: true},
		"plain, all can read":                 {s: two(true, 0, first), after: 10 * time.Minute, rules: usual, want: stepWrite, keys: []key{first}},
		"plain again, with several":           {s: two(true, 0, first, second), after: 10 * time.Minute, rules: usual, want: stepWrite, keys: []key{first, second}},
		"good":                                {s: two(false, never, first), after: 90*day - 1, rules: usual, want: stepNone, keys: []key{first}},
		"old":                                 {s: two(false, never, first), after: 90 * day, rules: usual, want: stepNext},
		"requested":                           {s: state{config: config{keys: []key{first}}, requested: true}, after: time.Hour, rules: usual, want: stepNext},
		"next, too early":                     {s: two(false, 90*day, first, second), after: 90*day + 599*time.Second, rules: usual, want: stepNone, keys: []key{first, second}},
		"next, all can read":                  {s: two(false, 90*day, first, second), after: 90*day + 600*time.Second, rules: usual, want: stepWrite, keys: []key{second, first}},
		"next, but a server runs without":     {s: two(false, 90*day, first, second), after: 99 * day, rules: unmounted, want: stepNone, keys: []key{first, second}},
		"the newest is used":                  {s: two(false, never, second, first), after: 91 * day, rules: usual, want: stepNone, keys: []key{second, first}},
		"turned off":                          {s: two(false, never, second, first), after: 91 * day, rules: off, want: stepDecrypt, keys: []key{second, first}, plain: true},
		"turned off, nothing is made instead": {s: two(true, never, first), after: 999 * day, rules: off, want: stepNone, keys: []key{first}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, done := tc.s.next(start.Add(tc.after), tc.rules)
			if done != tc.want {
				t.Errorf("the step is %q, want %q", done.reason, tc.want.reason)
			}
			if got.plain != tc.plain {
				t.Errorf("plain is %t", got.plain)
			}
			if tc.keys != nil && !slices.Equal(got.keys, tc.keys) {
				t.Errorf("the keys are %v", got.names())
			}
			for _, k := range tc.s.keys {
				if !slices.Contains(got.keys, k) {
					t.Errorf("key %s is dropped", k.Name)
				}
			}
			if got.requested && done == stepNext {
				t.Error("the request is answered and stays")
			}
			if done == stepNext && !got.published.Equal(start.Add(tc.after)) {
				t.Errorf("published at %s", got.published)
			}
		})
	}
}

// A key that was made by a clock that was ahead is followed by the next one all the same,
// and so is one of the same second.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 400 * day, "the same second": 0} {
		s := state{config: config{keys: []key{keyOf(ahead)}}, requested: true}
		made, done := s.next(start, usual)
		if done != stepNext {
			t.Fatalf("%s: the step is %q", name, done.reason)
		}
		writes, done := made.next(start.Add(usual.overlap), usual)
		if done != stepWrite || writes.keys[0] != made.keys[1] {
			t.Errorf("%s: after %q the keys are %v, of which %s was the newest", name, done.reason, writes.names(), made.keys[1].Name)
		}
	}
}

// Ten years, one wake-up after the other. What writes at any time was there for servers
// to read for the overlap before, whatever one of them does with a copy of the past.
func TestYears(t *testing.T) {
	t.Parallel()
	s, now := state{config: config{plain: true}}, start
	readable := map[string]time.Time{} // since when
	writers := 0
	for now.Before(start.Add(10 * 365 * day)) {
		next, done := s.next(now, usual)
		for _, k := range next.keys {
			if _, ok := readable[k.Name]; !ok {
				readable[k.Name] = now
			}
		}
		if len(next.keys) < len(s.keys) {
			t.Fatalf("%s: keys are dropped", now)
		}
		if done == stepWrite {
			writers++
			if since := now.Sub(readable[next.keys[0].Name]); since < usual.overlap {
				t.Fatalf("%s: a key writes after %s", now, since)
			}
		}
		if age := now.Sub(next.keys[0].made()); age > usual.rotation+usual.overlap {
			t.Fatalf("%s: the key that writes is %s old", now, age)
		}
		s = next
		wake := now.Add(365 * day)
		for _, due := range s.times(usual) {
			if due.Before(wake) {
				wake = due
			}
		}
		now = wake
	}
	if writers < 39 || writers > 41 {
		t.Errorf("%d rotations in ten years", writers)
	}
	encoded, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) > 10_000 {
		t.Errorf("the configuration has %d bytes after ten years", len(encoded))
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	a, b, c := keyOf(0), keyOf(1), keyOf(2)
	merged, err := config{keys: []key{b, a}}.merge(config{keys: []key{c, b}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]key{b, a, c}, merged.keys); diff != "" {
		t.Error(diff)
	}
	if got := merged.missing([]string{a.Name, "lost", c.Name}); !slices.Equal(got, []string{"lost"}) {
		t.Errorf("missing are %v", got)
	}
	if _, err := (config{keys: []key{a}}).merge(config{keys: []key{{a.Name, b.Secret}}}); !errors.Is(err, errConflict) {
		t.Errorf("two keys of one name: %v", err)
	}
}

func TestNote(t *testing.T) {
	t.Parallel()
	if got := note(note("", []string{"a", "b"}), []string{"b", "c"}); !slices.Equal(noted(got), []string{"a", "b", "c"}) {
		t.Errorf("noted are %q", got)
	}
}
