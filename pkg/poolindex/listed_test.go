// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import "testing"

func TestUpsertListed(t *testing.T) {
	p := Pool{Namespace: "ns", Name: "pool"}
	c := Candidate{Pool: p, Name: "a", ResourceVersion: 5}
	tests := map[string]struct {
		before func(x *Index)
		asOf   uint64
		stocks bool
		want   int
	}{
		"the list is ahead of the feed":         {func(*Index) {}, 6, true, 1},
		"the feed has heard of it":              {func(x *Index) { x.Upsert(c) }, 6, false, 1},
		"the feed has seen it go":               {func(x *Index) { x.Upsert(c); x.Remove("ns", "a", 9) }, 6, false, 0},
		"the feed is ahead, if not about it":    {func(x *Index) { x.Remove("ns", "other", 9) }, 6, false, 0},
		"the feed is as far as the list":        {func(x *Index) { x.Remove("ns", "other", 6) }, 6, true, 1},
		"it is bound by a transaction after it": {func(x *Index) { x.Upsert(c); x.Bound(x.Take(p, 1), 9) }, 10, false, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := New()
			tt.before(x)
			if got := x.UpsertListed([]Candidate{c}, tt.asOf); got != tt.stocks {
				t.Errorf("says stocked %v, want %v", got, tt.stocks)
			}
			if got := x.Available(p); got != tt.want {
				t.Errorf("%d available, want %d", got, tt.want)
			}
		})
	}
}
