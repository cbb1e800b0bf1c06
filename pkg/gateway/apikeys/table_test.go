// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func testTable() (*table, *clocktesting.FakeClock) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return newTable(clk), clk
}

func stored(id string) Stored { return Stored{Record: Record{ID: id}} }

// What a table believes of the key "a" after some events.
func TestTable(t *testing.T) {
	key := stored("a")
	found, none := answer{key: key}, answer{err: ErrNotFound}
	const unknown, yes, no = "unknown", "yes", "no"
	for name, tc := range map[string]struct {
		events func(*table, *clocktesting.FakeClock)
		want   string
	}{
		"nothing":         {func(*table, *clocktesting.FakeClock) {}, unknown},
		"listed":          {func(t *table, _ *clocktesting.FakeClock) { t.replace([]Stored{key}) }, yes},
		"not listed":      {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.replace(nil) }, unknown},
		"told of":         {func(t *table, _ *clocktesting.FakeClock) { t.replace(nil); t.put(key) }, yes},
		"told of its end": {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.drop("a") }, unknown},
		"a quiet watch": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Stored{key})
			for range 10 {
				clk.Step(watchLasts)
				t.alive()
			}
		}, yes},
		"a dead watch": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Stored{key})
			clk.Step(watchPatience + 1)
		}, unknown},
		"a dead watch, read": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Stored{key})
			clk.Step(watchPatience + 1)
			t.note("a", found, t.changes())
			clk.Step(believed)
		}, yes},
		"a dead watch, read long ago": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Stored{key})
			clk.Step(watchPatience + 1)
			t.note("a", found, t.changes())
			clk.Step(believed + 1)
		}, unknown},
		"a dead watch, gone": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Stored{key})
			clk.Step(watchPatience + 1)
			t.note("a", none, t.changes())
		}, no},
		"read before it is told of": {func(t *table, _ *clocktesting.FakeClock) { t.replace(nil); t.note("a", found, t.changes()) }, yes},
		"guessed":                   {func(t *table, _ *clocktesting.FakeClock) { t.replace(nil); t.note("a", none, t.changes()) }, no},
		"guessed long ago": {func(t *table, clk *clocktesting.FakeClock) {
			t.note("a", none, t.changes())
			clk.Step(denied + 1)
		}, unknown},
		"guessed, then told of": {func(t *table, _ *clocktesting.FakeClock) { t.note("a", none, t.changes()); t.put(key) }, yes},
		// It was read, and then the watch reported its end, before or after it was noted.
		"read, then told of its end": {func(t *table, _ *clocktesting.FakeClock) { t.note("a", found, t.changes()); t.drop("a") }, unknown},
		"told of its end while read": {func(t *table, _ *clocktesting.FakeClock) {
			before := t.changes()
			t.drop("a")
			t.note("a", found, before)
		}, unknown},
		"listed without it while read": {func(t *table, _ *clocktesting.FakeClock) {
			before := t.changes()
			t.replace(nil)
			t.note("a", found, before)
		}, unknown},
		"read, then listed without it": {func(t *table, _ *clocktesting.FakeClock) { t.note("a", found, t.changes()); t.replace(nil) }, unknown},
		// It was deleted here; what the watch reports of it is older than that.
		"deleted":                {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.bury("a") }, unknown},
		"deleted, then told of":  {func(t *table, _ *clocktesting.FakeClock) { t.bury("a"); t.put(key) }, unknown},
		"deleted, then listed":   {func(t *table, _ *clocktesting.FakeClock) { t.bury("a"); t.replace([]Stored{key}) }, unknown},
		"deleted, then noted":    {func(t *table, _ *clocktesting.FakeClock) { t.bury("a"); t.note("a", found, t.changes()) }, unknown},
		"another one is deleted": {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.bury("b") }, yes},
	} {
		t.Run(name, func(t *testing.T) {
			table, clk := testTable()
			tc.events(table, clk)
			got := unknown
			if found, ok := table.lookup("a"); ok && found.err == nil {
				got = yes
			} else if ok {
				got = no
			}
			if got != tc.want {
				t.Errorf("the key is believed: %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTableBounded(t *testing.T) {
	table, _ := testTable()
	for i := range 2 * maxAnswers {
		table.note(fmt.Sprint(i), answer{err: ErrNotFound}, table.changes())
		table.bury(fmt.Sprint("b", i))
	}
	if got := len(table.answers.Keys()); got > maxAnswers {
		t.Errorf("remembers %d answers", got)
	}
	if got := table.buried.Len(); got > maxBuried {
		t.Errorf("remembers %d ends", got)
	}
}
