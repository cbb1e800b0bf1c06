// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	// durationVariable is how long faults are inflicted at least, and seedVariable repeats a run as far as
	// it depends on chance.
	durationVariable = "SANDLOT_ROBUSTNESS_DURATION"
	seedVariable     = "SANDLOT_ROBUSTNESS_SEED"
	// keepVariable keeps the history of a run without problems, too.
	keepVariable = "SANDLOT_E2E_KEEP"
)

// TestRobustness inflicts faults on a cluster in use, and requires that what the clients and watchers saw
// and what was stored are possible.
func TestRobustness(t *testing.T) {
	seed, duration := uint64(1), time.Duration(0)
	var err error
	if text := os.Getenv(seedVariable); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	if text := os.Getenv(durationVariable); text != "" {
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", durationVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	r := start(t, programs)
	r.run(t, seed, duration)
	for _, problem := range r.check(t) {
		t.Error(problem)
	}
}

// trial is a cluster in use.
type trial struct {
	*cluster
	began    time.Time
	recorder *recorder
	watchers []*watcher
	traffic  *traffic
	faults   *inflicted
	// patience is how long claims may take to end when the clients have stopped.
	patience time.Duration
}

func (r *trial) now() time.Duration { return time.Since(r.began) }

func start(t *testing.T, folder string) *trial {
	t.Helper()
	r := &trial{cluster: startCluster(t, folder), began: time.Now(), patience: expect.Patience}
	r.recorder = record(t, r.direct, r.now)
	makePools(t, r.servers[0])
	t.Logf("%s: the pools are full", seconds(r.now()))
	r.watchers = startWatchers(t, r.cluster)
	return r
}

// run inflicts all faults, or those that are named, for a duration at least, and waits until all has calmed down.
func (r *trial) run(t *testing.T, seed uint64, duration time.Duration, faults ...string) {
	t.Helper()
	r.traffic = startTraffic(t, seed, r.servers, r.now)
	r.faults = inflict(t.Context(), t, seed, lanes(r.cluster, r.recorder, faults...), duration, r.now)
	t.Logf("%s: all faults were inflicted", seconds(r.now()))
	r.awaitReady(t)
	// All clients make some progress without faults.
	before := r.traffic.history.creates(succeeded)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if n := r.traffic.history.creates(succeeded); n < before+10 {
			return fmt.Errorf("%d claims were created since the faults ended", n-before)
		}
		return nil
	})
	r.traffic.stop()
	t.Logf("%s: the clients have stopped", seconds(r.now()))
	r.awaitCalm(t)
	t.Logf("%s: nothing is in progress", seconds(r.now()))
}

// awaitCalm waits until no claim is in progress and all pools are full. That this does not come is a problem.
func (r *trial) awaitCalm(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.patience)
	defer cancel()
	agents := r.servers[0].Client.AgentsV1alpha1()
	last := errors.New("not read yet")
	for ctx.Err() == nil {
		list, err := agents.SandboxClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Completed"})
		switch {
		case err != nil:
			last = err
		case len(list.Items) > 0:
			last = fmt.Errorf("%d claims, for example %s/%s: %+v", len(list.Items), list.Items[0].Namespace, list.Items[0].Name, list.Items[0].Status)
		default:
			for _, namespace := range namespaces {
				expect.FullPool(t, agents, namespace, "pool", poolSize)
			}
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
	r.traffic.history.problem("claims are still in progress %s after the clients have stopped: %v", r.patience, last)
}

// check returns what is not possible. It keeps the history if that is anything.
func (r *trial) check(t *testing.T) (problems []string) {
	t.Helper()
	changes := r.recorder.finish(t)
	calls := r.traffic.history.all()
	problems = append(problems, checkStore(changes)...)
	resolved, disagreements := resolve(calls, changes)
	problems = append(problems, disagreements...)
	problems = append(problems, r.traffic.history.problems...)
	for _, w := range r.watchers {
		for _, problem := range checkStreams(w.resource, w.finish(t, changes), changes) {
			problems = append(problems, w.name+": "+problem)
		}
	}
	impossible, info := linearize(resolved, time.Minute)
	problems = append(problems, impossible...)
	t.Logf("%s: checked %d calls and %d changes", seconds(r.now()), len(calls), len(changes))
	h := r.traffic.history
	t.Logf("%d creates succeeded, %d were refused, %d existed, the outcome of %d was unknown", h.creates(succeeded),
		h.creates(refused), h.creates(exists), h.creates(unknown))
	r.checkProcesses(t)
	if h.creates(succeeded) == 0 || h.creates(unknown) == 0 {
		t.Error("no create succeeded, or the outcome of none was unknown")
	}
	if len(problems) > 0 || os.Getenv(keepVariable) != "" {
		r.keep(t, problems, resolved, info)
	}
	return problems
}

// keep writes the history into a folder, and logs its path.
func (r *trial) keep(t *testing.T, problems []string, resolved []*call, info porcupine.LinearizationInfo) {
	t.Helper()
	//nolint:usetesting // it is kept
	dir, err := os.MkdirTemp("", "sandlot-robustness-history-")
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("the history is in %s", dir)
	if err := porcupine.VisualizePath(poolModel, info, filepath.Join(dir, "history.html")); err != nil {
		t.Error(err)
	}
	write := func(name string, content any) {
		text, err := json.MarshalIndent(content, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	write("calls.json", r.traffic.history.all())
	write("resolved.json", resolved)
	write("changes.json", r.recorder.changes)
	streams := map[string][]*stream{}
	for _, w := range r.watchers {
		streams[w.name] = w.streams
	}
	write("watchers.json", streams)
	if err := os.WriteFile(filepath.Join(dir, "problems.txt"), []byte(strings.Join(problems, "\n")+"\n"), 0o600); err != nil {
		t.Error(err)
	}
	if r.faults != nil {
		write("faults.json", r.faults.log)
	}
}
