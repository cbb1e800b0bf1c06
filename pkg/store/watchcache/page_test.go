// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import "testing"

func TestPageFor(t *testing.T) {
	for limit, want := range map[int64]int64{256 << 20: minPage, 4 << 30: minPage, 16 << 30: 256, 1 << 40: maxPage} {
		if got := pageFor(limit); got != want {
			t.Errorf("a page has %d objects with %d MiB, not %d", got, limit>>20, want)
		}
	}
}
