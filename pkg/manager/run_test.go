// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestRunAll(t *testing.T) {
	lost := errors.New("lease lost")
	untilTold := func(ctx context.Context) error { <-ctx.Done(); return nil }
	fails := func(context.Context) error { return lost }
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	deaf := func(context.Context) error { <-never; return nil }
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	cases := map[string]struct {
		ctx      context.Context
		patience time.Duration
		starts   []func(context.Context) error
		want     []error
	}{
		"told to end":                {cancelled, time.Hour, []func(context.Context) error{untilTold, untilTold}, nil},
		"one ends the other":         {t.Context(), time.Hour, []func(context.Context) error{untilTold, fails}, []error{lost}},
		"one does not hear":          {cancelled, time.Millisecond, []func(context.Context) error{untilTold, deaf}, []error{errStuck}},
		"one fails, one is stuck":    {t.Context(), time.Millisecond, []func(context.Context) error{deaf, fails}, []error{lost, errStuck}},
		"a single one ends by error": {t.Context(), time.Hour, []func(context.Context) error{fails}, []error{lost}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := runAll(tc.ctx, tc.patience, tc.starts...)
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("runAll: %v, want %v", err, tc.want)
			}
			for _, want := range tc.want {
				if !errors.Is(err, want) {
					t.Errorf("runAll: %v, want %v in it", err, want)
				}
			}
		})
	}
}
