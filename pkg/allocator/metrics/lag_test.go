// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestLag(t *testing.T) {
	Register()
	clk := clocktesting.NewFakePassiveClock(time.Now())
	pass := func(d time.Duration) { clk.SetTime(clk.Now().Add(d)) }
	l := NewLag(clk)
	want := func(what string, behind time.Duration) {
		t.Helper()
		if got := l.Behind(); got != behind {
			t.Errorf("%s: behind by %v, want %v", what, got, behind)
		}
	}
	want("nothing written", 0)
	l.Expect(10)
	pass(time.Second)
	l.Expect(11) // not measured: one at a time
	l.Observe(9)
	want("older news", time.Second)
	l.Observe(10)
	want("heard", 0)
	l.Observe(20)
	l.Expect(15) // the watch was faster than the answer
	pass(time.Second)
	want("heard before", 0)
	l.Expect(30)
	pass(time.Minute)
	want("the watch is silent", time.Minute)
	l.Observe(40) // a list
	want("listed", 0)
}
