// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// fault is something that is done to a part of a cluster for some time.
type fault struct {
	name string
	// shortest and longest are how long it lasts.
	shortest, longest time.Duration
	inflict           func(ctx context.Context, d time.Duration) error
}

// leaseTime is longer than the lease of a server in etcd.
const leaseTime = 17 * time.Second

// lane is faults that follow each other, on one part of a cluster. Lanes overlap.
type lane []fault

// lanes returns the lanes of a cluster, with all faults or only those that are named.
func lanes(c *cluster, r *recorder, names ...string) []lane {
	all := allLanes(c, r)
	if len(names) == 0 {
		return all
	}
	for i := range all {
		all[i] = slices.DeleteFunc(all[i], func(f fault) bool { return !slices.Contains(names, f.name) })
	}
	return slices.DeleteFunc(all, func(l lane) bool { return len(l) == 0 })
}

func allLanes(c *cluster, r *recorder) []lane {
	var all []lane
	for i, s := range c.servers {
		l := lane{
			{"late requests", 100 * time.Millisecond, time.Second, func(ctx context.Context, d time.Duration) error {
				s.link.deliverLate(ctx, d)
				return nil
			}},
			{"cut connections", 0, 0, func(context.Context, time.Duration) error { s.link.cut(); return nil }},
			{"half-closed connections", 0, 0, func(context.Context, time.Duration) error { s.link.halfClose(); return nil }},
			{"lost answers", 200 * time.Millisecond, 2 * time.Second, func(ctx context.Context, d time.Duration) error {
				s.link.loseAnswers(true)
				pause(ctx, d)
				s.link.loseAnswers(false)
				return nil
			}},
			{"slow connections", time.Second, 3 * time.Second, func(ctx context.Context, d time.Duration) error {
				s.link.slow(d / 30)
				pause(ctx, d)
				s.link.slow(0)
				return nil
			}},
			{"no connections", 500 * time.Millisecond, 3 * time.Second, func(ctx context.Context, d time.Duration) error {
				s.link.refuse(true)
				pause(ctx, d)
				s.link.refuse(false)
				return nil
			}},
			{"killed server", 0, time.Second, func(ctx context.Context, d time.Duration) error { s.kill(ctx, d); return nil }},
		}
		if i == 0 {
			l = append(l[:3], l[len(l)-1], fault{"stopped server", leaseTime, leaseTime + time.Second, s.stop})
		}
		all = append(all, l)
	}
	return append(all,
		lane{
			{"killed etcd", 0, time.Second, func(ctx context.Context, d time.Duration) error { c.etcd.kill(ctx, d); return nil }},
			{"compaction", 0, 0, func(ctx context.Context, _ time.Duration) error { return compact(ctx, c, r) }},
			{"defragmentation", 0, 0, func(ctx context.Context, _ time.Duration) error {
				_, err := c.direct.Defragment(ctx, c.direct.Endpoints()[0])
				return err
			}},
			{"stopped etcd", time.Second, 3 * time.Second, c.etcd.stop},
		},
		lane{
			{"killed controllers", 0, time.Second, func(ctx context.Context, d time.Duration) error { c.controllers.kill(ctx, d); return nil }},
			{"stopped controllers", time.Second, 4 * time.Second, c.controllers.stop},
		})
}

// compact compacts etcd as far as the changes are recorded.
func compact(ctx context.Context, c *cluster, r *recorder) error {
	_, err := c.direct.Compact(ctx, r.position())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // an API server was first
	}
	return err
}

// inflicted counts faults by name.
type inflicted struct {
	mu     sync.Mutex
	counts map[string]int
	failed map[string]error
	log    []string
}

// inflict carries out all faults of all lanes at least once, in an order that the seed decides, until the last
// lane has done so and some time has passed.
func inflict(ctx context.Context, t *testing.T, seed uint64, all []lane, atLeast time.Duration, now func() time.Duration) *inflicted {
	t.Helper()
	done := &inflicted{counts: map[string]int{}, failed: map[string]error{}}
	var running sync.WaitGroup
	until := now() + atLeast
	var unfinished atomic.Int64 // lanes
	unfinished.Store(int64(len(all)))
	for i, l := range all {
		chance := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
		running.Go(func() {
			for first := true; ctx.Err() == nil; first = false {
				for _, n := range chance.Perm(len(l)) {
					f := l[n]
					if !first && unfinished.Load() == 0 && now() >= until {
						return
					}
					between := time.Duration(100+chance.IntN(900)) * time.Millisecond
					if !first { // in a long run, there is time in which claims succeed
						between *= 8
					}
					pause(ctx, between)
					d := f.shortest + time.Duration(chance.Float64()*float64(f.longest-f.shortest))
					began := now()
					within, cancel := context.WithTimeout(ctx, 30*time.Second)
					err := f.inflict(within, d)
					cancel()
					done.mu.Lock()
					done.log = append(done.log, fmt.Sprintf("%s to %s: lane %d: %s: %v", seconds(began), seconds(now()), i, f.name, err))
					if err == nil {
						done.counts[f.name]++
					} else {
						done.failed[f.name] = err
					}
					done.mu.Unlock()
				}
				if first {
					unfinished.Add(-1)
				}
			}
		})
	}
	running.Wait()
	for _, l := range all {
		for _, f := range l {
			if done.counts[f.name] == 0 && ctx.Err() == nil {
				t.Errorf("the fault %q did not happen: %v", f.name, done.failed[f.name])
			}
		}
	}
	return done
}
