// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

func TestMinRequeue(t *testing.T) {
	const never = time.Duration(0)
	if got := queue.MinRequeue(never, 3, 2, never, 4); got != 2 {
		t.Errorf("the shortest of five is %d, want 2", got)
	}
	for _, tc := range []struct{ a, b, want time.Duration }{
		{never, never, never}, {never, 2, 2}, {2, never, 2}, {1, 2, 1}, {2, 1, 1}, {-1, 2, 2}, {2, -1, 2}, {-1, -1, never},
	} {
		if got := queue.MinRequeue(tc.a, tc.b); got != tc.want {
			t.Errorf("MinRequeue(%d, %d) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
