// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// clientRetries is how often client-go repeats a request by default.
const clientRetries = 10

// TestRollingUpdate restarts our API servers one after the other, as a Deployment
// would, while clients claim through the aggregator and past it. No client that
// does what client-go does by itself sees an error: what a server that ends does not
// take any more, it sends away to come again.
func TestRollingUpdate(t *testing.T) {
	const (
		pool   = 20
		rounds = 2
	)
	c, ns, empty := admin(t), namespace(t), namespace(t)
	expect.FilledPool(t, c, ns, pool)
	expect.FilledPool(t, c, empty, 0)
	service, err := sandlot.Service(c.config)
	if err != nil {
		t.Fatal(err)
	}
	aggregated := newLoad(ns)
	aggregated.retries = clientRetries
	past := newLoad(ns)
	past.name, past.clients, past.retries = "past", 2, clientRetries
	crowds := []*crowd{c.start(t, aggregated), clientsFor(t, service).start(t, past)}
	// Requests that come as fast as they are answered, and change nothing: what is sent
	// while a connection is being closed is the hardest.
	stream := c.startStream(t, ns)

	var late []load.Answer
	for round := range rounds {
		for i, server := range sandlot.APIServers() {
			for _, crowd := range crowds {
				crowd.AwaitMore(t, 10)
			}
			// These are in the hands of a server that ends, some of them, and nothing comes
			// for them.
			waiting := c.start(t, &crowd{
				namespace: empty, name: fmt.Sprintf("late-%d-%d", round, i), clients: 4, replicas: 1, each: 1, retries: clientRetries,
			})
			began := time.Now()
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s took %s to end", server.Name(), time.Since(began))
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			waiting.Finish()
			waiting.checkFailures(t)
			late = append(late, waiting.Answers()...)
		}
	}
	var answers []load.Answer
	for _, crowd := range crowds {
		crowd.AwaitMore(t, 10)
		crowd.Stop()
		crowd.checkFailures(t)
		answers = append(answers, crowd.Answers()...)
	}
	if errs := stream.stop(); len(errs) > 0 {
		t.Errorf("%d of %d requests beside the claims failed, such as: %v", len(errs), stream.done.Load(), errors.Join(errs[:min(len(errs), 10)]...))
	}
	t.Logf("%d claims, and %d requests beside them", len(answers), stream.done.Load())
	c.awaitCalm(t, ns, pool).check(t, answers)

	// What no client got before the servers ended is for others to bring to an end.
	more := []byte(`{"spec":{"replicas":2}}`)
	if _, err := c.SandboxSets(empty).Patch(t.Context(), "pool", types.MergePatchType, more, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitCalm(t, empty, 2).check(t, late)
}

// stream is clients that send one request after the other, as fast as they can.
type stream struct {
	end     context.CancelFunc
	running sync.WaitGroup
	done    atomic.Int64

	mu   sync.Mutex
	errs []error
}

// startStream starts clients that ask what would become of a claim.
func (c *clients) startStream(t *testing.T, ns string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{end: cancel}
	t.Cleanup(func() { s.stop() })
	for range 8 {
		s.running.Go(func() {
			for ctx.Err() == nil {
				_, err := c.SandboxClaims(ns).Create(ctx, builders.Claim("dry", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err != nil && ctx.Err() == nil {
					s.mu.Lock()
					s.errs = append(s.errs, fmt.Errorf("at %s: %w %s", time.Now().Format("15:04:05.000"), err, causes(err)))
					s.mu.Unlock()
				}
				s.done.Add(1)
			}
		})
	}
	return s
}

// stop ends the stream and returns all errors that it met.
func (s *stream) stop() []error {
	s.end()
	s.running.Wait()
	return s.errs
}

// causes is what a server said that did not answer as one of Kubernetes does.
func causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	return fmt.Sprint(status.Status().Details.Causes)
}
