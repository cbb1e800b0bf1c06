// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pause lets what a round has set off in the server (events, the count of a set)
// end before the next round begins.
const pause = 300 * time.Millisecond

// arm is one of the things that a case compares.
type arm struct {
	name string
	// count is how many operations a round has.
	count int
	// ready, if set, comes before each operation of a client, and is not timed.
	ready func(ctx context.Context, client int) error
	// do is one operation of one client.
	do func(ctx context.Context, client int) error
	// before and after, if set, surround a round and are not timed.
	before, after func(context.Context) error
	// reset, if set, is called when the warm-up is over.
	reset func()
	// cpu, if set, is how much processor time the server has used so far.
	cpu func(context.Context) (time.Duration, error)
	// profile, if set, is called before the last round, and what it returns after.
	profile func(context.Context) func() error
}

// sample is what one arm did in one round.
type sample struct {
	latencies []time.Duration
	elapsed   time.Duration
	cpu       time.Duration // of the server, if it was asked for
}

// series is what one arm did, round by round.
type series []sample

// compare lets arms take turns, forwards and backwards (A B B A ...), so that
// what changes on the machine in the meantime hits all of them alike. A shorter
// round of each goes before and does not count.
func compare(ctx context.Context, what string, clients, rounds int, arms []arm) ([]series, error) {
	for _, a := range arms {
		a.count, a.profile = warmUp(a.count), nil
		if _, err := a.round(ctx, clients); err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
	}
	for _, a := range arms {
		if a.reset != nil {
			a.reset()
		}
	}
	result := make([]series, len(arms))
	for r := range rounds {
		var line strings.Builder
		fmt.Fprintf(&line, "%s %d/%d:", what, r+1, rounds)
		for _, i := range order(len(arms), r) {
			a := arms[i]
			if r < rounds-1 {
				a.profile = nil
			}
			s, err := a.round(ctx, clients)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			result[i] = append(result[i], s)
			fmt.Fprintf(&line, "  %s %.2f ms %.0f/s", a.name, s.p50(), s.rate())
			if s.cpu > 0 {
				fmt.Fprintf(&line, " %.2f cpu-ms", s.cpuEach())
			}
		}
		logf("%s", line.String())
	}
	return result, nil
}

// warmUp is how many operations come before count measured ones.
func warmUp(count int) int { return min(count, max(count/4, 10)) }

// order is the order of n arms in a round.
func order(n, round int) []int {
	indexes := make([]int, n)
	for i := range indexes {
		indexes[i] = i
	}
	if round%2 == 1 {
		slices.Reverse(indexes)
	}
	return indexes
}

func (a arm) round(ctx context.Context, clients int) (sample, error) {
	if a.before != nil {
		if err := a.before(ctx); err != nil {
			return sample{}, err
		}
	}
	if err := sleep(ctx, pause); err != nil {
		return sample{}, err
	}
	runtime.GC() // our own garbage is not to be paid for by the next arm
	finish := func() error { return nil }
	if a.profile != nil {
		finish = a.profile(ctx)
	}
	s, err := a.timed(ctx, clients)
	err = errors.Join(err, finish())
	if err == nil && a.after != nil {
		err = a.after(ctx)
	}
	return s, err
}

// timed runs the operations and sees what processor time they cost the server.
func (a arm) timed(ctx context.Context, clients int) (sample, error) {
	if a.cpu == nil {
		return a.run(ctx, clients)
	}
	before, err := a.cpu(ctx)
	if err != nil {
		return sample{}, err
	}
	s, err := a.run(ctx, clients)
	if err != nil {
		return sample{}, err
	}
	after, err := a.cpu(ctx)
	s.cpu = after - before
	return s, err
}

// run lets clients do the arm's operations and returns the first error.
func (a arm) run(ctx context.Context, clients int) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	latencies := make([]time.Duration, a.count)
	start := time.Now()
	for client := range clients {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= a.count || ctx.Err() != nil {
					return
				}
				var err error
				if latencies[i], err = a.one(ctx, client); err != nil {
					cancel(err) // the first one stays
					return
				}
			}
		})
	}
	wg.Wait()
	return sample{latencies: latencies, elapsed: time.Since(start)}, context.Cause(ctx)
}

// one does one operation and returns how long it took.
func (a arm) one(ctx context.Context, client int) (time.Duration, error) {
	if a.ready != nil {
		if err := a.ready(ctx, client); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	err := a.do(ctx, client)
	return time.Since(began), err
}

func (s sample) p50() float64 { return percentile(s.latencies, 50) }

// rate is operations a second.
func (s sample) rate() float64 { return float64(len(s.latencies)) / s.elapsed.Seconds() }

// cpuEach is the server's processor time for one operation.
func (s sample) cpuEach() float64 { return milliseconds(s.cpu) / float64(len(s.latencies)) }

// p50 is the median over the rounds of their medians: one disturbed round does
// not move it.
func (s series) p50() float64 { return median(s.each(sample.p50)) }

// rate is the median over the rounds.
func (s series) rate() float64 { return median(s.each(sample.rate)) }

// cpuEach is the median over the rounds.
func (s series) cpuEach() float64 { return median(s.each(sample.cpuEach)) }

// p99 is over all operations, because a round has too few for one of its own.
func (s series) p99() float64 {
	var all []time.Duration
	for _, one := range s {
		all = append(all, one.latencies...)
	}
	return percentile(all, 99)
}

func (s series) each(of func(sample) float64) []float64 {
	values := make([]float64, len(s))
	for i := range s {
		values[i] = of(s[i])
	}
	return values
}

// ratio is the median over the rounds of a's value by b's value in the same round.
func ratio(a, b series, of func(sample) float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = of(a[i]) / of(b[i])
	}
	return median(ratios)
}

// difference is the median over the rounds of a's value less b's value in the same round.
func difference(a, b series, of func(sample) float64) float64 {
	differences := make([]float64, len(a))
	for i := range a {
		differences[i] = of(a[i]) - of(b[i])
	}
	return median(differences)
}

// percentile returns, in milliseconds, the smallest value that is not below p
// percent of all.
func percentile(latencies []time.Duration, p float64) float64 {
	if len(latencies) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(latencies))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return milliseconds(sorted[max(rank, 1)-1])
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
