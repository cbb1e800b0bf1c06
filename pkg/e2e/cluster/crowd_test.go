// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// claimLabel is set by claims of a crowd on what they claim, and its value is the
// claim's name.
const claimLabel = "example.com/claim"

// crowd is clients that claim sandboxes of a set, each one claim after the other, and
// that remember what they were told. Whatever a create fails
// with, it is repeated by the same name until it is known what became of it.
type crowd struct {
	namespace string
	// name begins the names of the claims.
	name     string
	clients  int
	replicas int32 // of each claim
	// set is the set; "pool" if it is empty.
	set string
	// each is how many claims a client creates; 0 is until stop.
	each int
	// pause is between two claims of a client.
	pause time.Duration
	// retries is how often the client library may repeat a create by itself.
	retries int
	// fails makes a claim fail that finds nothing, instead of waiting for it.
	fails bool

	running sync.WaitGroup
	end     context.CancelFunc

	mu         sync.Mutex
	told       []told
	failures   []failure
	complaints []error
}

// told is a claim as a client was told of it.
type told struct {
	claim *v1alpha1.SandboxClaim
	// began is when it was first created, and after how many claims of the crowd had
	// been answered by then.
	began time.Time
	after int
}

// failure is a create that was answered with an error, or not at all.
type failure struct {
	claim        string
	began, ended time.Time
	err          error
}

// outage is a time in which creates may fail.
type outage struct {
	began, ended time.Time
}

// start lets the crowd begin. It stops with the test, if not before.
func (c *clients) start(t testing.TB, crowd *crowd) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	crowd.end = cancel
	t.Cleanup(func() {
		cancel()
		crowd.running.Wait()
	})
	for i := range crowd.clients {
		crowd.running.Go(func() {
			for n := 0; (crowd.each == 0 || n < crowd.each) && ctx.Err() == nil; n++ {
				claim := newCrowdClaim(fmt.Sprintf("%s-%02d-%04d", crowd.name, i, n), crowd.replicas)
				if crowd.set != "" {
					claim.Spec.TemplateName = crowd.set
				}
				if crowd.fails {
					claim.Spec.OnShortage = v1alpha1.ShortageFail
				}
				// What was begun is brought to an end, until the test is over.
				crowd.settle(t.Context(), c, claim)
				letPass(ctx, crowd.pause)
			}
		})
	}
	return crowd
}

// stop returns when all clients know of all their claims.
func (c *crowd) stop() {
	c.end()
	c.running.Wait()
}

// finish returns when all clients have done what they were to do.
func (c *crowd) finish() { c.running.Wait() }

// newCrowdClaim returns a claim of warm sandboxes that waits for them longer than
// anything lasts, and is not deleted.
func newCrowdClaim(name string, replicas int32) *v1alpha1.SandboxClaim {
	claim := builders.Claim(name, replicas)
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 2 * expect.Patience}
	claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
	claim.Spec.Labels = map[string]string{claimLabel: name}
	return claim
}

// settle creates a claim, and does not rest before it knows what became of it.
func (c *crowd) settle(ctx context.Context, by *clients, claim *v1alpha1.SandboxClaim) {
	lost, first, after := false, time.Now(), len(c.answers())
	for ctx.Err() == nil {
		began := time.Now()
		created := &v1alpha1.SandboxClaim{}
		// Once, by default: the client library repeats what it was told to repeat.
		err := by.RESTClient().Post().Namespace(c.namespace).Resource("sandboxclaims").MaxRetries(c.retries).Body(claim).Do(ctx).Into(created)
		if apierrors.IsAlreadyExists(err) {
			if !lost {
				c.complain(fmt.Errorf("claim %s is there, but was never created: %w", claim.Name, err))
				return
			}
			created, err = by.SandboxClaims(c.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		}
		if err == nil {
			c.note(told{claim: created, began: first, after: after})
			return
		}
		if ctx.Err() != nil {
			return
		}
		lost = true
		c.fail(failure{claim: claim.Name, began: began, ended: time.Now(), err: err})
		letPass(ctx, 50*time.Millisecond)
	}
}

func (c *crowd) note(what told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what)
}

func (c *crowd) fail(what failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, what)
}

func (c *crowd) complain(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complaints = append(c.complaints, err)
}

// answers returns what the crowd was told so far.
func (c *crowd) answers() []told {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.told)
}

// awaitMore waits until the crowd was told of so many more claims.
func (c *crowd) awaitMore(t testing.TB, more int) {
	t.Helper()
	until := len(c.answers()) + more
	expect.Eventually(t.Context(), t, func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.told) < until {
			err := fmt.Errorf("%d of %d claims answered", len(c.told), until)
			if n := len(c.failures); n > 0 {
				err = fmt.Errorf("%w, %d failures, the last one: %w", err, n, c.failures[n-1].err)
			}
			return err
		}
		return nil
	})
}

// checkFailures requires that creates failed in outages only.
func (c *crowd) checkFailures(t testing.TB, outages ...outage) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.complaints {
		t.Error(err)
	}
	for _, f := range c.failures {
		excused := false
		for _, o := range outages {
			excused = excused || !f.began.After(o.ended) && !f.ended.Before(o.began)
		}
		if !excused {
			t.Errorf("creating claim %s from %s to %s failed without need: %v", f.claim,
				f.began.Format(time.TimeOnly), f.ended.Format(time.TimeOnly), f.err)
		}
	}
}

// during runs what takes something out of service, and returns when that was.
func during(t testing.TB, trouble func() error) outage {
	t.Helper()
	o := outage{began: time.Now()}
	if err := trouble(); err != nil {
		t.Fatal(err)
	}
	o.ended = time.Now()
	return o
}

// letPass lets some time pass.
func letPass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// newLoad is a crowd that goes on until it is stopped, at a pace that leaves a
// busy machine the time for pods.
func newLoad(namespace string) *crowd {
	return &crowd{namespace: namespace, name: "load", clients: 8, replicas: 1, pause: 200 * time.Millisecond}
}

// untilNow is the outage with a later end.
func (o outage) untilNow() outage {
	o.ended = time.Now()
	return o
}

// awaitAvailable waits until the aggregator sends requests to us, several times in
// a row: there are two servers, and it may remember that one of them was gone.
func (c *clients) awaitAvailable(t testing.TB) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		for range 10 {
			list := c.RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("sandboxclaims").MaxRetries(0).Do(ctx)
			if err := list.Error(); err != nil {
				return err
			}
		}
		return nil
	})
}
