// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// claimsSchema is the FlowSchema of creates of claims, and the priority level that
// they have for themselves.
const claimsSchema = "sandlot-claims"

// TestWaitingClaimsDelayOnlyClaims lets more claims of a user wait than a
// kube-apiserver with the limits that it has by default handles requests, and makes
// sure that everything else is answered meanwhile: other requests without any of
// the claims being answered first, and claims of others that find stock in their
// turn.
func TestWaitingClaimsDelayOnlyClaims(t *testing.T) {
	t.Parallel()
	const (
		waiting            = 500 // of 600 requests at a time, a level may take 370 by borrowing
		crowded, tidy      = "crowded", "tidy"
		waiter, other      = "waiter", "other"
		lists, otherClaims = 5, 3
	)
	s := newSite(t, "--max-requests-inflight=400", "--max-mutating-requests-inflight=200")
	// Claims wait longer than by default, so that a busy machine has the time for some
	// requests before one of them is answered.
	installed := s.install(t, controlplane.SandlotOptions{Overlay: "single", APIServerArgs: []string{
		"--sync-window=20s", "--max-waiting-creates=1000", // so that the level is all that protects others
	}})
	s.makeNamespace(t, crowded)
	s.makeNamespace(t, tidy)
	if _, err := s.SandboxSets(crowded).Create(t.Context(), builders.Set("pool", 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FilledPool(t, s, tidy, otherClaims+1)
	for user, ns := range map[string]string{waiter: crowded, other: tidy} {
		s.grant(t, ns, "edit", user)
		who := s.user(t, user)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
			return err
		})
	}

	line := s.user(t, waiter).waitInLine(t, crowded, waiting)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if n := s.sumMetric(t, s.config, "apiserver_flowcontrol_current_inqueue_requests"); n == 0 {
			return fmt.Errorf("no request has to wait for a seat; %d claims were answered", line.answered.Load())
		}
		return nil
	})
	for user, ns := range map[string]string{waiter: crowded, other: tidy} {
		who := s.user(t, user)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			before := line.answered.Load()
			for range lists {
				if _, err := who.kube.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}); err != nil {
					return err
				}
			}
			if n := line.answered.Load() - before; n > 0 {
				return fmt.Errorf("%d lists of user %s were answered when %d claims were", lists, user, n)
			}
			return nil
		})
	}
	who := s.user(t, other)
	for i := range otherClaims {
		began := time.Now()
		who.claim(t, tidy, builders.Claim(fmt.Sprintf("claim-%d", i), 1))
		t.Logf("a claim beside those that wait was answered after %s, and %d of theirs until then", time.Since(began), line.answered.Load())
	}
	line.leave()
	for _, err := range line.errs {
		t.Error(err)
	}

	// Both servers know them by these, also where apply creates one.
	direct, err := installed.Direct(0, s.config)
	if err != nil {
		t.Fatal(err)
	}
	for server, config := range map[string]*rest.Config{"kube-apiserver": s.config, "ours": direct} {
		if n := s.sumMetric(t, config, "apiserver_flowcontrol_dispatched_requests_total", `flow_schema="`+claimsSchema+`"`); n < otherClaims {
			t.Errorf("%s handled %v creates of claims as such", server, n)
		}
	}
	s.checkApply(t, other, tidy)
}

// TestWaitingClaimsLeaveSeats lets more claims of a user wait than there are seats for
// claims, with the limits that all have by default, and makes sure that seats are left
// for claims of others that find stock.
func TestWaitingClaimsLeaveSeats(t *testing.T) {
	t.Parallel()
	const (
		waiting       = 500
		crowded, tidy = "crowded", "tidy"
		waiter, other = "waiter", "other"
		otherClaims   = 5
	)
	s := newSite(t, "--max-requests-inflight=400", "--max-mutating-requests-inflight=200")
	installed := s.install(t, controlplane.SandlotOptions{Overlay: "single", APIServerArgs: []string{"--sync-window=30s"}})
	s.makeNamespace(t, crowded)
	s.makeNamespace(t, tidy)
	if _, err := s.SandboxSets(crowded).Create(t.Context(), builders.Set("pool", 0), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FilledPool(t, s, tidy, otherClaims)
	for user, ns := range map[string]string{waiter: crowded, other: tidy} {
		s.grant(t, ns, "edit", user)
		who := s.user(t, user)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	line := s.user(t, waiter).waitInLine(t, crowded, waiting)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if early := line.early.Load(); early < waiting/2 {
			return fmt.Errorf("%d of %d creates did not wait", early, waiting)
		}
		return nil
	})
	// Those that wait come again as soon as they are answered.
	direct, err := installed.Direct(0, s.config)
	if err != nil {
		t.Fatal(err)
	}
	for server, config := range map[string]*rest.Config{"kube-apiserver": s.config, "ours": direct} {
		expect.Eventually(t.Context(), t, func(context.Context) error {
			const level = `priority_level="` + claimsSchema + `"`
			executed := s.sumMetric(t, config, "apiserver_flowcontrol_current_executing_seats", level)
			seats := s.sumMetric(t, config, "apiserver_flowcontrol_current_limit_seats", level)
			if queued := s.sumMetric(t, config, "apiserver_flowcontrol_current_inqueue_requests", level); executed >= seats || queued > 0 {
				return fmt.Errorf("claims have %v of %v seats of %s, and %v stand in line", executed, seats, server, queued)
			}
			return nil
		})
	}
	who := s.user(t, other)
	for i := range otherClaims {
		who.claim(t, tidy, builders.Claim(fmt.Sprintf("claim-%d", i), 1))
	}
	line.leave()
	for _, err := range line.errs {
		t.Error(err)
	}
}

// user returns clients of a user of the site.
func (s *site) user(t *testing.T, name string) *clients {
	t.Helper()
	config, err := s.User(name)
	if err != nil {
		t.Fatal(err)
	}
	return clientsFor(t, config)
}

// line is a number of clients whose claims wait for the set "pool" to have
// something, which it never has.
type line struct {
	end     context.CancelFunc
	running sync.WaitGroup
	// answered counts claims that were answered after their time, and early those that
	// were answered long before.
	answered, early atomic.Int64

	mu   sync.Mutex
	errs []error
}

func (c *clients) waitInLine(t *testing.T, ns string, number int) *line {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &line{end: cancel}
	t.Cleanup(l.leave)
	for i := range number {
		l.running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				claim := builders.Claim(fmt.Sprintf("claim-%d-%d", i, n), 1)
				claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 30 * time.Second} // no user comes back for it
				began := time.Now()
				_, err := c.SandboxClaims(ns).Create(ctx, claim, metav1.CreateOptions{})
				if err == nil && time.Since(began) < 10*time.Second {
					l.early.Add(1)
					return // it need not come again: the claim continues
				}
				switch {
				case err == nil:
					l.answered.Add(1)
				case ctx.Err() != nil, isTooMany(err):
				case apierrors.IsServiceUnavailable(err): // kube-apiserver asks for our health, and a busy machine answers late
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
				default:
					l.mu.Lock()
					l.errs = append(l.errs, err)
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// isTooMany reports whether a client gave up because it was sent away for too often.
func isTooMany(err error) bool {
	status := interface{ Status() metav1.Status }(nil)
	return errors.As(err, &status) && status.Status().Code == http.StatusTooManyRequests
}

func (l *line) leave() {
	l.end()
	l.running.Wait()
}

// sumMetric returns the sum of the series of a metric of a server that have the
// given labels.
func (s *site) sumMetric(t *testing.T, config *rest.Config, name string, labels ...string) float64 {
	t.Helper()
	body, err := clientsFor(t, config).RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for text := range strings.Lines(string(body)) {
		if !strings.HasPrefix(text, name+"{") || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(text, l) }) {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(text[strings.LastIndex(text, "}")+1:], &value); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		total += value
	}
	return total
}

// checkApply makes sure that a server-side apply that claims is handled as one.
func (s *site) checkApply(t *testing.T, user, ns string) {
	t.Helper()
	schema, err := s.kube.FlowcontrolV1().FlowSchemas().Get(t.Context(), claimsSchema, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := s.User(user)
	if err != nil {
		t.Fatal(err)
	}
	const header = "X-Kubernetes-PF-FlowSchema-UID"
	var said []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req)
			if err == nil {
				said = response.Header.Values(header)
			}
			return response, err
		})
	})
	claim := []byte(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"applied"},"spec":{"templateName":"pool"}}`)
	created, err := clientsFor(t, config).SandboxClaims(ns).Patch(t.Context(), "applied", types.ApplyPatchType, claim, metav1.PatchOptions{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	expect.Claimed(t, created, 1)
	if uid := string(schema.UID); len(said) == 0 || slices.ContainsFunc(said, func(v string) bool { return v != uid }) {
		t.Errorf("an apply that claims is of the flow schemas %q, want %s", said, uid)
	}
}
