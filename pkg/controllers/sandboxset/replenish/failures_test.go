// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"
)

func TestFailures(t *testing.T) {
	type look struct {
		after             time.Duration // since the look before
		failed, available int
		revision          string
		want              time.Duration
	}
	failed := func(after, want time.Duration) look { return look{after, 1, 0, current, want} }
	const s = time.Second
	tests := map[string][]look{
		"none":               {{0, 0, 0, current, 0}, {s, 0, 5, current, 0}},
		"some fail, some do": {{0, 3, 1, current, 0}},
		"doubles":            {failed(0, s), failed(s, 2*s), failed(2*s, 4*s), failed(4*s, 8*s)},
		"up to a minute": {failed(0, s), failed(s, 2*s), failed(2*s, 4*s), failed(4*s, 8*s), failed(8*s, 16*s),
			failed(16*s, 32*s), failed(32*s, 60*s), failed(60*s, 60*s)},
		"more of the same round": {failed(0, s), failed(s/4, 3*s/4), failed(s/4, s/2), failed(s/2, 2*s)},
		"pause goes on when they are removed": {
			failed(0, s), {s / 2, 0, 0, current, s / 2}, {s / 2, 0, 0, current, 0}, failed(0, 2*s),
		},
		"a success ends it":           {failed(0, s), {s / 2, 0, 1, current, 0}, failed(0, s)},
		"another template ends it":    {failed(0, s), failed(s, 2*s), {0, 0, 0, older, 0}, {0, 1, 0, older, s}},
		"failing in another template": {failed(0, s), failed(s, 2*s), {0, 1, 0, older, s}},
	}
	for name, looks := range tests {
		t.Run(name, func(t *testing.T) {
			f, now := newFailures(), epoch
			for i, l := range looks {
				now = now.Add(l.after)
				if got := f.look(pool1, l.revision, l.failed, l.available, now); got != l.want {
					t.Errorf("look %d: pause %s, want %s", i, got, l.want)
				}
			}
		})
	}
}

func TestFailuresSucceeded(t *testing.T) {
	f := newFailures()
	f.look(pool1, current, 1, 0, epoch)
	f.succeeded(pool1, older)
	f.succeeded(pool2, current)
	if got := f.look(pool1, current, 0, 0, epoch); got != time.Second {
		t.Errorf("pause %s after a success of others", got)
	}
	f.succeeded(pool1, current)
	if got := f.look(pool1, current, 0, 0, epoch); got != 0 {
		t.Errorf("pause %s after a success", got)
	}
}
