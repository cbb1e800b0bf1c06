// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

func TestSooner(t *testing.T) {
	const never = time.Duration(0)
	for _, tc := range []struct{ a, b, want time.Duration }{
		{never, never, never}, {never, 2, 2}, {2, never, 2}, {1, 2, 1}, {2, 1, 1}, {-1, 2, 2}, {2, -1, 2},
	} {
		if got := queue.Sooner(tc.a, tc.b); got != tc.want {
			t.Errorf("Sooner(%d, %d) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
