// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestStackStopsFromAbove(t *testing.T) {
	var mu sync.Mutex
	var order []string
	ctx, cancel := context.WithCancel(t.Context())
	s := newStack(ctx)
	for _, name := range []string{"etcd", "server", "controllers"} {
		s.start(name, func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return ctx.Err()
		})
	}
	cancel()
	if err := s.wait(); err != nil {
		t.Errorf("wait: %v", err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if want := []string{"controllers", "server", "etcd"}; !slices.Equal(order, want) {
		t.Errorf("stopped in the order %v, want %v", order, want)
	}
}

func TestStackReportsThePartThatEnded(t *testing.T) {
	broken := errors.New("disk full")
	cases := map[string]struct {
		err  error
		want string
	}{
		"with an error":    {err: broken, want: "etcd: disk full"},
		"without an error": {want: "etcd: stopped unexpectedly"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStack(t.Context())
			s.start("etcd", func(context.Context) error { return tc.err })
			s.start("server", func(ctx context.Context) error { <-ctx.Done(); return nil })
			if err := s.wait(); err == nil || err.Error() != tc.want {
				t.Errorf("wait: %v, want %q", err, tc.want)
			}
			if err := s.stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestStackReportsWhatDoesNotStopWell(t *testing.T) {
	broken := errors.New("disk full")
	s := newStack(t.Context())
	s.start("etcd", func(ctx context.Context) error { <-ctx.Done(); return broken })
	if err := s.stop(); !errors.Is(err, broken) {
		t.Errorf("stop: %v, want %v", err, broken)
	}
}
