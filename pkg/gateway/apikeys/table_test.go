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

func stored(id string) Key { return Key{Record: Record{ID: id}} }

// What a table believes of the key "a" after some events.
func TestTable(t *testing.T) {
	key := stored("a")
	found, none := answer{key: key}, answer{err: ErrNotFound}
	const unknown, yes, no = "unknown", "yes", "no"
	for name, tc := range map[string]struct {
		events func(*table, *clocktesting.FakeClock)
		want   string
	}{
		"nothing":             {func(*table, *clocktesting.FakeClock) {}, unknown},
		"listed":              {func(t *table, _ *clocktesting.FakeClock) { t.replace([]Key{key}) }, yes},
		"not listed":          {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.replace(nil) }, unknown},
		"reported":            {func(t *table, _ *clocktesting.FakeClock) { t.replace(nil); t.put(key) }, yes},
		"reported as deleted": {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.onWatchDelete("a") }, unknown},
		"a quiet watch": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Key{key})
			for range 10 {
				clk.Step(watchLasts)
				t.alive()
			}
		}, yes},
		"a dead watch": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Key{key})
			clk.Step(watchPatience + 1)
		}, unknown},
		"a dead watch, read": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Key{key})
			clk.Step(watchPatience + 1)
			t.cacheRead("a", found, t.removalCount())
			clk.Step(foundTTL)
		}, yes},
		"a dead watch, read long ago": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Key{key})
			clk.Step(watchPatience + 1)
			t.cacheRead("a", found, t.removalCount())
			clk.Step(foundTTL + 1)
		}, unknown},
		"a dead watch, gone": {func(t *table, clk *clocktesting.FakeClock) {
			t.replace([]Key{key})
			clk.Step(watchPatience + 1)
			t.cacheRead("a", none, t.removalCount())
		}, no},
		"read before it is reported": {func(t *table, _ *clocktesting.FakeClock) { t.replace(nil); t.cacheRead("a", found, t.removalCount()) }, yes},
		"guessed":                    {func(t *table, _ *clocktesting.FakeClock) { t.replace(nil); t.cacheRead("a", none, t.removalCount()) }, no},
		"guessed long ago": {func(t *table, clk *clocktesting.FakeClock) {
			t.cacheRead("a", none, t.removalCount())
			clk.Step(missingTTL + 1)
		}, unknown},
		"guessed, then reported": {func(t *table, _ *clocktesting.FakeClock) { t.cacheRead("a", none, t.removalCount()); t.put(key) }, yes},
		// It was read, and then the watch reported its end, before or after it was noted.
		"read, then reported as deleted": {func(t *table, _ *clocktesting.FakeClock) {
			t.cacheRead("a", found, t.removalCount())
			t.onWatchDelete("a")
		}, unknown},
		"reported as deleted while read": {func(t *table, _ *clocktesting.FakeClock) {
			before := t.removalCount()
			t.onWatchDelete("a")
			t.cacheRead("a", found, before)
		}, unknown},
		"listed without it while read": {func(t *table, _ *clocktesting.FakeClock) {
			before := t.removalCount()
			t.replace(nil)
			t.cacheRead("a", found, before)
		}, unknown},
		"read, then listed without it": {func(t *table, _ *clocktesting.FakeClock) { t.cacheRead("a", found, t.removalCount()); t.replace(nil) }, unknown},
		// It was deleted here; what the watch reports of it is older than that.
		"deleted":                {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.onLocalDelete("a") }, unknown},
		"deleted, then reported": {func(t *table, _ *clocktesting.FakeClock) { t.onLocalDelete("a"); t.put(key) }, unknown},
		"deleted, then listed":   {func(t *table, _ *clocktesting.FakeClock) { t.onLocalDelete("a"); t.replace([]Key{key}) }, unknown},
		"deleted, then noted": {func(t *table, _ *clocktesting.FakeClock) {
			t.onLocalDelete("a")
			t.cacheRead("a", found, t.removalCount())
		}, unknown},
		"another one is deleted": {func(t *table, _ *clocktesting.FakeClock) { t.put(key); t.onLocalDelete("b") }, yes},
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
		table.cacheRead(fmt.Sprint(i), answer{err: ErrNotFound}, table.removalCount())
		table.onLocalDelete(fmt.Sprint("b", i))
	}
	if got := len(table.answers.Keys()); got > maxAnswers {
		t.Errorf("remembers %d answers", got)
	}
	if got := table.deletedHere.Len(); got > maxDeletedHere {
		t.Errorf("remembers %d ends", got)
	}
}
