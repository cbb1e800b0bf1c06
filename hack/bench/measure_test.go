// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
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
	a := arm{count: 100, do: func(context.Context, int) { done.Add(1) }}
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
	a := arm{count: 1000, do: func(context.Context, int) {
		if done.Add(1) == 10 {
			check(failure)
		}
	}}
	if _, err := a.run(t.Context(), 1); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if n := done.Load(); n != 10 {
		t.Errorf("%d operations", n)
	}
}

func TestCount(t *testing.T) {
	m := parse(strings.NewReader(strings.Join([]string{
		`# TYPE process_cpu_seconds_total counter`,
		`process_cpu_seconds_total 1.5`,
		`# TYPE sandlot_template_patches_total counter`,
		`sandlot_template_patches_total 3`,
		`# TYPE apiserver_request_total counter`,
		`apiserver_request_total{code="201",group="agents.kruise.io",resource="sandboxes",verb="POST"} 7`,
		`apiserver_request_total{code="409",group="agents.kruise.io",resource="sandboxes",verb="POST"} 1`,
		`apiserver_request_total{code="200",group="agents.kruise.io",resource="sandboxes",subresource="status",verb="PATCH"} 5`,
		`apiserver_request_total{code="200",group="agents.kruise.io",resource="sandboxsets",verb="PATCH"} 2`,
		`apiserver_request_total{code="200",group="agents.kruise.io",resource="sandboxes",verb="WATCH"} 9`,
		`apiserver_request_total{code="201",group="agents.kruise.io",resource="sandboxclaims",verb="POST"} 100`,
		`apiserver_request_total{code="201",group="",resource="pods",verb="POST"} 4`,
		`apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",verb="PUT"} 50`,
		"",
	}, "\n")))
	got, others := counts{}, counts{}
	m.count(got, own)
	m.count(others, "cluster ")
	if want := (counts{
		cpuTime: 1500, patches: 3, bindings: 0, created: 7, written: 15, "own create sandboxes": 7, "own create sandboxes (conflict)": 1,
		"own patch sandboxes/status": 5, "own patch sandboxsets": 2, "own create sandboxclaims": 100,
	}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := others.named("cluster "), (counts{"create pods": 4}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCounts(t *testing.T) {
	before, after := counts{"own a": 1, "own b": 2}, counts{"own a": 5, "own b": 2, "cluster c": 1}
	each := after.minus(before).times(0.5)
	if want := (counts{"own a": 2, "cluster c": 0.5}); !maps.Equal(each, want) {
		t.Errorf("got %v, want %v", each, want)
	}
	if got := each.named(own).total(); got != 2 {
		t.Errorf("got %g", got)
	}
	if got := counts(nil).plus(before); !maps.Equal(got, before) {
		t.Errorf("got %v", got)
	}
}

func TestAvailable(t *testing.T) {
	m := parse(strings.NewReader(strings.Join([]string{
		`# TYPE sandlot_pool_sandboxes gauge`,
		`sandlot_pool_sandboxes{sandboxset="pool",sandboxset_namespace="a",state="available"} 7`,
		`sandlot_pool_sandboxes{sandboxset="pool",sandboxset_namespace="a",state="taken"} 1`,
		`sandlot_pool_sandboxes{sandboxset="pool",sandboxset_namespace="b",state="available"} 1e+03`,
		"",
	}, "\n")))
	for namespace, want := range map[string]int{"a": 7, "b": 1000, "c": 0} {
		if got := m.available(pool{namespace: namespace}); got != want {
			t.Errorf("%s: got %d, want %d", namespace, got, want)
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

func TestDifference(t *testing.T) {
	of := func(values ...int) (s series) {
		for _, value := range values {
			s = append(s, sample{latencies: ms(value)})
		}
		return s
	}
	// The medians differ by 2, and the median difference is 3.
	if got := difference(of(4, 9, 13), of(1, 8, 7), sample.p50); got != 3 {
		t.Errorf("got %g", got)
	}
}

func TestPace(t *testing.T) {
	p := newPace(4, 100) // each client 25 times a second
	now := time.Unix(100, 0)
	for client, want := range []time.Duration{0, 10, 20, 30} {
		if got := p.after(time.Time{}, now, client).Sub(now); got != want*time.Millisecond {
			t.Errorf("client %d begins after %s, want %d ms", client, got, want)
		}
	}
	// However late it is, the next time follows from the last one.
	if got := p.after(now, now.Add(time.Second), 1); !got.Equal(now.Add(40 * time.Millisecond)) {
		t.Errorf("the next operation begins at %s", got)
	}
	if p.wait(t.Context(), 0); p.next[0].IsZero() {
		t.Errorf("the first client waits until %s", p.next[0])
	}
	if p.begin(t.Context()); !p.next[0].IsZero() {
		t.Error("the times of the last round are left")
	}
}
