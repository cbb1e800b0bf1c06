// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	waitingIdle = "waiting/1000"
	// waitingClaims is how many wait there.
	waitingClaims = 1000
	// watched is for how long the server's processor time is watched.
	watched = 3 * time.Second
	// maxWaitingCPU is how much more processor time a server may take while claims wait,
	// in ms a second. An idle server takes 25 to 45, so that is what one cannot tell from
	// none. It is 20 µs for each claim: one look at each every 10 s would be more.
	maxWaitingCPU = 20
)

// runWaiting compares the processor time of a server with claims that wait on an empty
// pool with that of the same server without.
func (b *bench) runWaiting(ctx context.Context) (err error) {
	if !b.wants(waitingIdle) {
		return nil
	}
	// Creates are answered at once: whose call has ended waits as well.
	s, err := startServer(ctx, b.program, filepath.Join(b.dir, "waiting"), b.connections, "--sync-window", "1ms")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := b.compareWaiting(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", waitingIdle, err)
	}
	return b.report(r)
}

func (b *bench) compareWaiting(ctx context.Context, s *server) (*result, error) {
	p := pool{namespace: "bench-waiting", size: 1}
	if _, err := s.makeModel(ctx, p); err != nil {
		return nil, err
	}
	w := &crowd{claimer: newClaimer(s, p)}
	w.claimer.change = waits
	if _, err := w.claimer.create(ctx, 0, w.claimer.claim(1)); err != nil { // the only sandbox
		return nil, err
	}
	watch := func(name string) arm {
		return arm{
			name: name, count: 1, cpu: s.cpu,
			do:      func(ctx context.Context, _ int) error { return sleep(ctx, watched) },
			profile: profileOf(s, b.profiles, waitingIdle+"-"+name),
		}
	}
	with, without := watch("waiting"), watch("idle")
	with.before, with.after = w.gather, w.leave
	all, err := compare(ctx, waitingIdle, 1, b.rounds, []arm{with, without})
	if err != nil {
		return nil, err
	}
	var growth []float64
	for i := range all[0] {
		growth = append(growth, all[0][i].cpuPerSecond()-all[1][i].cpuPerSecond())
	}
	r := &result{Case: waitingIdle, Clients: 1, waitingFigures: &waitingFigures{
		Waiting: waitingClaims,
		With:    number(median(all[0].each(sample.cpuPerSecond))),
		Without: number(median(all[1].each(sample.cpuPerSecond))),
		Growth:  number(median(growth)),
	}}
	r.judge(atMost("waiting_cpu_growth_ms_per_s", r.Growth, maxWaitingCPU))
	return r, nil
}

// cpuPerSecond is the server's processor time, in ms, for a second of the round.
func (s sample) cpuPerSecond() float64 { return milliseconds(s.cpu) / s.elapsed.Seconds() }

// waits makes a claim wait for a sandbox of the pool, for longer than any run takes.
func waits(claim *v1alpha1.SandboxClaim) {
	claim.Spec.OnShortage = v1alpha1.ShortageWait
	claim.Spec.CreateOnNoStock = new(false)
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 24 * time.Hour}
}

// crowd is claims that wait.
type crowd struct{ claimer *claimer }

// gather creates the claims, and returns when the server has come to rest.
func (c *crowd) gather(ctx context.Context) error {
	var next atomic.Int64
	creators, creating := errgroup.WithContext(ctx)
	for client := range manyClients {
		creators.Go(func() error {
			for next.Add(1) <= waitingClaims {
				claim, err := c.claimer.create(creating, client, c.claimer.claim(1))
				if err != nil {
					return err
				}
				if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
					return fmt.Errorf("claim %s does not wait, it is %q", claim.Name, claim.Status.Phase)
				}
			}
			return nil
		})
	}
	if err := creators.Wait(); err != nil {
		return err
	}
	return c.claimer.server.idle(ctx)
}

// leave deletes the claims, all of which must still wait, and returns when the server
// has come to rest.
func (c *crowd) leave(ctx context.Context) error {
	claims := c.claimer.server.clients[0].AgentsV1alpha1().SandboxClaims(c.claimer.pool.namespace)
	still := metav1.ListOptions{FieldSelector: "status.phase=" + string(v1alpha1.SandboxClaimPhaseClaiming)}
	list, err := claims.List(ctx, still)
	if err != nil {
		return err
	}
	if n := len(list.Items); n != waitingClaims {
		return fmt.Errorf("%d claims wait, not %d", n, waitingClaims)
	}
	if err := claims.DeleteCollection(ctx, metav1.DeleteOptions{}, still); err != nil {
		return err
	}
	return c.claimer.server.idle(ctx)
}
