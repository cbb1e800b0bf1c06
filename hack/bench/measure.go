// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pause lets what a round has set off in the server (events, the count of a set)
	// end before the next round begins.
	pause = 300 * time.Millisecond
	// profileSeconds is about as long as a round. What is longer is idle time, which
	// does not show.
	profileSeconds = "4"
)

// arm is one of the things that a case compares.
type arm struct {
	name string
	// count is how many operations a round has.
	count int
	// ready, if set, comes before each operation of a client, and is not timed.
	ready func(ctx context.Context, client int)
	// do is one operation of one client.
	do func(ctx context.Context, client int)
	// before and after, if set, surround a round and are not timed.
	before, after func(context.Context)
	// reset, if set, is called when the warm-up is over.
	reset func()
	// cpu, if set, is how much processor time the server has used so far, in ms.
	cpu func(context.Context) float64
	// profiled, if set, is the server to profile in the last round.
	profiled *server
}

// sample is what one arm did in one round.
type sample struct {
	latencies []time.Duration
	elapsed   time.Duration
	cpu       float64 // ms of the server, if it was asked for
}

// series is what one arm did, round by round.
type series []sample

// compare lets arms take turns, forwards and backwards (A B B A ...), so that
// what changes on the machine in the meantime hits all of them alike. A shorter
// round of each goes before and does not count.
func (t *stage) compare(what string, clients, rounds int, arms ...arm) []series {
	for _, a := range arms {
		a.count = warmUp(a.count)
		a.round(t.ctx, clients)
	}
	for _, a := range arms {
		if a.reset != nil {
			a.reset()
		}
	}
	all := make([]series, len(arms))
	for r := range rounds {
		var line strings.Builder
		for _, i := range order(len(arms), r) {
			a := arms[i]
			finish := func() {}
			if t.profiles != "" && a.profiled != nil && r == rounds-1 {
				finish = a.profiled.profile(t.ctx, t.profiles, what+"-"+a.name)
			}
			s := a.round(t.ctx, clients)
			finish()
			all[i] = append(all[i], s)
			fmt.Fprintf(&line, "  %s %.2f ms %.0f/s %.2f cpu-ms", a.name, s.p50(), s.rate(), s.cpuEach())
		}
		logf("%s %d/%d:%s", what, r+1, rounds, line.String())
	}
	return all
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

func (a arm) round(ctx context.Context, clients int) sample {
	if a.before != nil {
		a.before(ctx)
	}
	check(sleep(ctx, pause))
	runtime.GC() // our own garbage is not to be paid for by the next arm
	before := 0.0
	if a.cpu != nil {
		before = a.cpu(ctx)
	}
	s, err := a.run(ctx, clients)
	if err != nil {
		check(fmt.Errorf("%s: %w", a.name, err))
	}
	if a.cpu != nil {
		s.cpu = a.cpu(ctx) - before
	}
	if a.after != nil {
		a.after(ctx)
	}
	return s
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
			for i := int(next.Add(1)) - 1; i < a.count && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := a.one(ctx, client, &latencies[i]); err != nil {
					cancel(err) // the first one stays
				}
			}
		})
	}
	wg.Wait()
	return sample{latencies: latencies, elapsed: time.Since(start)}, context.Cause(ctx)
}

// one does one operation and returns how long it took.
func (a arm) one(ctx context.Context, client int, took *time.Duration) (err error) {
	defer catch(&err)
	if a.ready != nil {
		a.ready(ctx, client)
	}
	began := time.Now()
	a.do(ctx, client)
	*took = time.Since(began)
	return nil
}

func (s sample) p50() float64 { return percentile(s.latencies, 50) }

// rate is operations a second.
func (s sample) rate() float64 { return float64(len(s.latencies)) / s.elapsed.Seconds() }

// cpuEach is the server's processor time for one operation.
func (s sample) cpuEach() float64 { return s.cpu / float64(len(s.latencies)) }

// cpuPerSecond is the server's processor time, in ms, for a second of the round.
func (s sample) cpuPerSecond() float64 { return s.cpu / s.elapsed.Seconds() }

// of is the median over the rounds: one disturbed round does not move it.
func (s series) of(value func(sample) float64) float64 {
	values := make([]float64, len(s))
	for i := range s {
		values[i] = value(s[i])
	}
	return median(values)
}

func (s series) p50() float64     { return s.of(sample.p50) }
func (s series) rate() float64    { return s.of(sample.rate) }
func (s series) cpuEach() float64 { return s.of(sample.cpuEach) }

// p99 is over all operations, because a round has too few for one of its own.
func (s series) p99() float64 {
	var all []time.Duration
	for _, one := range s {
		all = append(all, one.latencies...)
	}
	return percentile(all, 99)
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

// profile begins a CPU profile of the server, which is kept in a folder by the function that
// it returns.
func (s *server) profile(ctx context.Context, folder, name string) func() {
	var wg sync.WaitGroup
	var data []byte
	var err error
	wg.Go(func() {
		data, err = s.raw(0).Get().AbsPath("/debug/pprof/profile").Param("seconds", profileSeconds).DoRaw(ctx)
	})
	return func() {
		wg.Wait()
		check(err)
		check(os.MkdirAll(folder, 0o755))
		name = strings.NewReplacer("/", "-", " ", "-").Replace(name)
		check(os.WriteFile(filepath.Join(folder, name+".pprof"), data, 0o644))
	}
}

// pace lets clients begin operations at a rate that is theirs together. A client that is late
// begins at once, and goes back to its times when it can: what is late then is no longer at
// the rate, which shows in the rate that was reached.
type pace struct {
	// interval is the time from one operation of a client to the next.
	interval time.Duration
	// next is when each client begins its next operation; zero before the first one.
	next []time.Time
}

func newPace(clients int, rate float64) *pace {
	return &pace{interval: time.Duration(float64(clients) / rate * float64(time.Second)), next: make([]time.Time, clients)}
}

// begin forgets the times of the last round.
func (p *pace) begin(context.Context) { clear(p.next) }

// wait returns when it is a client's turn. Each has an entry of its own.
func (p *pace) wait(ctx context.Context, client int) {
	now := time.Now()
	p.next[client] = p.after(p.next[client], now, client)
	if due := p.next[client].Sub(now); due > 0 {
		check(sleep(ctx, due))
	}
}

// after is when the operation begins that follows one of a time. First ones are spread over
// an interval.
func (p *pace) after(last, now time.Time, client int) time.Time {
	if last.IsZero() {
		return now.Add(p.interval * time.Duration(client) / time.Duration(len(p.next)))
	}
	return last.Add(p.interval)
}
