// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func ms(values ...int) []time.Duration {
	var all []time.Duration
	for _, v := range values {
		all = append(all, time.Duration(v)*time.Millisecond)
	}
	return all
}

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	tests := map[string]struct {
		latencies []time.Duration
		p, want   float64
	}{
		"one":                {ms(7), 50, 7},
		"median of odd":      {ms(3, 1, 2), 50, 2},
		"median of even":     {ms(4, 1, 3, 2), 50, 2},
		"p99 of a few":       {ms(1, 2, 3), 99, 3},
		"p99 of a hundred":   {ms(hundred...), 99, 99},
		"p100":               {ms(hundred...), 100, 100},
		"p0 is the smallest": {ms(hundred...), 0, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := percentile(tc.latencies, tc.p); got != tc.want {
				t.Errorf("got %g, want %g", got, tc.want)
			}
		})
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("of nothing: got %g", got)
	}
}

func TestMedian(t *testing.T) {
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("odd: got %g", got)
	}
	if got := median([]float64{9, 1, 5, 6}); got != 5.5 {
		t.Errorf("even: got %g", got)
	}
}

// TestRatio has a third round in which the machine was slow for both.
func TestRatio(t *testing.T) {
	claims := series{{latencies: ms(2, 2, 9)}, {latencies: ms(3, 3, 3)}, {latencies: ms(50, 50, 50)}}
	plains := series{{latencies: ms(1, 1, 1)}, {latencies: ms(2, 2, 2)}, {latencies: ms(25, 25, 25)}}
	if got := ratio(claims, plains, sample.p50); got != 2 {
		t.Errorf("got %g, want 2", got)
	}
	if got := claims.p50(); got != 3 {
		t.Errorf("p50: got %g, want 3", got)
	}
	if got := claims.p99(); got != 50 {
		t.Errorf("p99: got %g, want 50", got)
	}
	if got := (sample{latencies: ms(1, 1, 1, 1), elapsed: 2 * time.Second}).rate(); got != 2 {
		t.Errorf("rate: got %g, want 2", got)
	}
}

func TestOrderTakesTurns(t *testing.T) {
	var all []int
	for round := range 4 {
		all = append(all, order(2, round)...)
	}
	if want := []int{0, 1, 1, 0, 0, 1, 1, 0}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
}

func TestRunDoesEveryOperationOnce(t *testing.T) {
	var done atomic.Int64
	a := arm{count: 100, do: func(context.Context, int) error { done.Add(1); return nil }}
	s, err := a.run(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	if n := done.Load(); n != 100 || len(s.latencies) != 100 {
		t.Errorf("%d operations, %d latencies", n, len(s.latencies))
	}
}

func TestRunStopsAtTheFirstError(t *testing.T) {
	failure := errors.New("no stock")
	var done atomic.Int64
	a := arm{count: 1000, do: func(context.Context, int) error {
		if done.Add(1) == 10 {
			return failure
		}
		return nil
	}}
	if _, err := a.run(t.Context(), 1); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if n := done.Load(); n != 10 {
		t.Errorf("%d operations", n)
	}
}

func TestParseCounters(t *testing.T) {
	got, err := parseCounters(strings.Join([]string{
		`# HELP process_cpu_seconds_total Total time.`,
		`process_cpu_seconds_total 1.5`,
		`sandlot_template_patches_total 3`,
		`apiserver_request_total{code="201",resource="sandboxes",verb="POST"} 7`,
		`apiserver_request_total{code="409",resource="sandboxes",verb="POST"} 1`,
		`apiserver_request_total{code="200",resource="sandboxes",subresource="status",verb="PATCH"} 5`,
		`apiserver_request_total{code="200",resource="sandboxsets",verb="PATCH"} 2`,
		`apiserver_request_total{code="200",resource="sandboxes",verb="WATCH"} 9`,
		`apiserver_request_total{code="201",resource="sandboxclaims",verb="POST"} 100`,
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (counters{created: 7, writes: 15, patches: 3, cpu: 1500 * time.Millisecond}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseAvailable(t *testing.T) {
	metrics := strings.Join([]string{
		`# HELP sandlot_pool_sandboxes Sandboxes of a pool in this server's index.`,
		`sandlot_pool_sandboxes{sandboxset="pool",sandboxset_namespace="a",state="available"} 7`,
		`sandlot_pool_sandboxes{sandboxset="pool",sandboxset_namespace="a",state="taken"} 1`,
		`sandlot_pool_sandboxes{sandboxset="pool",sandboxset_namespace="b",state="available"} 1e+03`,
		`sandlot_pool_replicas{sandboxset="pool",sandboxset_namespace="c"} 5`,
	}, "\n")
	for namespace, want := range map[string]int{"a": 7, "b": 1000, "c": 0} {
		if got, err := parseAvailable(metrics, pool{namespace: namespace}); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", namespace, got, err, want)
		}
	}
}

func TestNextLook(t *testing.T) {
	tests := map[string]struct {
		took            time.Duration
		available, size int
		want            time.Duration
	}{
		"nothing yet":   {time.Second, 0, 1000, 100 * time.Millisecond},
		"a tenth":       {200 * time.Millisecond, 100, 1000, 500 * time.Millisecond},
		"most":          {2 * time.Second, 900, 1000, 111111111},
		"nearly":        {2 * time.Second, 999, 1000, 20 * time.Millisecond},
		"more than all": {2 * time.Second, 1001, 1000, 20 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := nextLook(tc.took, tc.available, tc.size); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
