// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load is for tests only: it holds clients that create many claims at once and
// remember what became of them.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Storm is clients that create claims, each one after the other. Whatever a create fails
// with, it is repeated by the same name until it is known what became of it.
type Storm struct {
	Namespace string
	Clients   int
	// Total is how many claims the clients create together; 0 is until Stop.
	Total int
	// Claim returns the n-th claim of all, which a client creates.
	Claim func(client, n int) *v1alpha1.SandboxClaim
	// Pause is between two claims of a client.
	Pause time.Duration
	// Retries is how often the client library may repeat a create by itself.
	Retries int

	running sync.WaitGroup
	end     context.CancelFunc
	next    atomic.Int64

	mu         sync.Mutex
	answers    []Answer
	refusals   []Failure
	failures   []Failure
	complaints []error
}

// Answer is a claim as a client got it.
type Answer struct {
	Claim *v1alpha1.SandboxClaim
	// Began is when it was first created, and After how many claims of the storm had
	// been answered by then.
	Began time.Time
	After int
	// Found reports whether an answer was lost, and the claim was there later.
	Found bool
}

// Failure is a create that was answered with an error, or not at all.
type Failure struct {
	Claim        string
	Began, Ended time.Time
	Err          error
}

// Start lets the storm begin, by a client that may be another one each time, and nil
// while there is no server. The storm stops with the test, if not before.
func (s *Storm) Start(t testing.TB, client func() typed.AgentsV1alpha1Interface) *Storm {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s.end = cancel
	t.Cleanup(s.Stop)
	for i := range s.Clients {
		s.running.Go(func() {
			for ctx.Err() == nil {
				n := int(s.next.Add(1)) - 1
				if s.Total > 0 && n >= s.Total {
					return
				}
				// What was begun is brought to an end, until the test is over.
				s.settle(t.Context(), client, s.Claim(i, n))
				letPass(ctx, s.Pause)
			}
		})
	}
	return s
}

// Stop returns when all clients know of all their claims.
func (s *Storm) Stop() {
	s.end()
	s.running.Wait()
}

// Finish returns when the clients have created all claims.
func (s *Storm) Finish() { s.running.Wait() }

// settle creates a claim, and does not rest before it knows what became of it.
func (s *Storm) settle(ctx context.Context, client func() typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim) {
	lost, first, after := false, time.Now(), len(s.Answers())
	for ; ctx.Err() == nil; letPass(ctx, 20*time.Millisecond) {
		by := client()
		if by == nil {
			continue
		}
		began, found := time.Now(), false
		created := &v1alpha1.SandboxClaim{}
		err := by.RESTClient().Post().Namespace(s.Namespace).Resource("sandboxclaims").MaxRetries(s.Retries).Body(claim).Do(ctx).Into(created)
		if apierrors.IsAlreadyExists(err) {
			if !lost {
				note(s, &s.complaints, fmt.Errorf("claim %s is there, but was never created: %w", claim.Name, err))
				return
			}
			// It had come through, or another try of ours has.
			found = true
			created, err = by.SandboxClaims(s.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		}
		failure := Failure{Claim: claim.Name, Began: began, Ended: time.Now(), Err: err}
		switch {
		case err == nil:
			created.TypeMeta = metav1.TypeMeta{} // items of lists have none
			note(s, &s.answers, Answer{Claim: created, Began: first, After: after, Found: found})
			return
		case ctx.Err() != nil:
			return
		case apierrors.IsTooManyRequests(err) && claim.Spec.OnShortage == v1alpha1.ShortageFail:
			// It holds whatever was lost before: had one of those tries stored the
			// claim, this one would have found it.
			note(s, &s.refusals, failure)
			return
		}
		lost = true
		note(s, &s.failures, failure)
	}
}

func note[T any](s *Storm, in *[]T, what T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*in = append(*in, what)
}

func noted[T any](s *Storm, in *[]T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(*in)
}

// Answers returns the claims that the clients got so far.
func (s *Storm) Answers() []Answer { return noted(s, &s.answers) }

// Refusals returns the creates so far that were refused for shortage, of claims that
// asked for that. Such a claim is not created again.
func (s *Storm) Refusals() []Failure { return noted(s, &s.refusals) }

// Failures returns the creates so far that failed in any other way, and were repeated.
func (s *Storm) Failures() []Failure { return noted(s, &s.failures) }

// Complaints returns what can be no answer to any create.
func (s *Storm) Complaints() []error { return noted(s, &s.complaints) }

// AwaitMore waits until the clients know what became of so many more claims.
func (s *Storm) AwaitMore(t testing.TB, more int) {
	t.Helper()
	settled := func() int { return len(s.Answers()) + len(s.Refusals()) }
	until := settled() + more
	expect.Eventually(t.Context(), t, func(context.Context) error {
		n, failures := settled(), s.Failures()
		switch {
		case n >= until:
			return nil
		case len(failures) > 0:
			return fmt.Errorf("%d of %d claims answered, %d failures, the last one: %w", n, until, len(failures), failures[len(failures)-1].Err)
		}
		return fmt.Errorf("%d of %d claims answered", n, until)
	})
}

// AwaitOutage waits until a create of each client has failed that began after the call. No
// answer from before an outage is on its way then.
func (s *Storm) AwaitOutage(t testing.TB) {
	t.Helper()
	since := time.Now()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		failed := sets.New[string]() // each client is at one claim until it knows of it
		for _, failure := range s.Failures() {
			if failure.Began.After(since) {
				failed.Insert(failure.Claim)
			}
		}
		if failed.Len() < s.Clients {
			return fmt.Errorf("%d of %d clients have noticed the outage", failed.Len(), s.Clients)
		}
		return nil
	})
}

// letPass lets some time pass.
func letPass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
