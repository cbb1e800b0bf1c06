// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// storm is a number of clients that create claims as fast as they can, and
// remember every answer.
type storm struct {
	running sync.WaitGroup
	server  atomic.Pointer[server] // nil: there is none
	ending  atomic.Bool
	answers atomic.Int64

	mu sync.Mutex
	// answered are the claims as they were acknowledged, by name.
	answered map[string]*v1alpha1.SandboxClaim
	// refused are the names of claims that were never answered but with 429.
	refused map[string]bool
	// found counts claims that a lost answer had been about.
	found      int
	complaints []string
}

func newStorm() *storm {
	return &storm{answered: map[string]*v1alpha1.SandboxClaim{}, refused: map[string]bool{}}
}

// serve tells the clients where the server is, or with nil that it is gone.
func (s *storm) serve(server *server) { s.server.Store(server) }

// stop lets the clients bring to an end what they have begun, and waits for them.
func (s *storm) stop() {
	s.ending.Store(true)
	s.running.Wait()
}

// awaitAnswers waits for so many more answers.
func (s *storm) awaitAnswers(t testing.TB, more int) {
	t.Helper()
	until := s.answers.Load() + int64(more)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if now := s.answers.Load(); now < until {
			return fmt.Errorf("%d of %d answers", now, until)
		}
		return nil
	})
}

func (s *storm) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
}

// work creates claims, one after the other, until the storm ends.
func (s *storm) work(ctx context.Context, worker int, chance *rand.Rand) {
	for n := 0; ctx.Err() == nil && !s.ending.Load(); n++ {
		claim := randomClaim(chance, worker < 2)
		claim.Name = fmt.Sprintf("w%02d-%04d", worker, n)
		s.settle(ctx, claim)
	}
}

// randomClaim returns one of the kinds of claims that there are. The large ones
// take more than one transaction.
func randomClaim(chance *rand.Rand, large bool) *v1alpha1.SandboxClaim {
	if large {
		claim := builders.Claim("", 130+chance.Int32N(60))
		claim.Spec.TemplateName = "big"
		claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 20 * time.Second}
		return claim
	}
	claim := builders.Claim("", 1)
	switch kind := chance.IntN(16); {
	case kind < 6:
	case kind < 9:
		claim.Spec.Replicas = new(int32(5))
	case kind < 11:
		claim.Spec.Replicas, claim.Spec.Allocation = new(int32(7)), v1alpha1.AllocationAllOrNothing
	case kind < 13: // fresh sandboxes, bound from birth
		claim.Spec.TemplateName, claim.Spec.Replicas, claim.Spec.CreateOnNoStock = "cold", new(1+chance.Int32N(3)), new(true)
	case kind < 14: // some warm, some fresh
		claim.Spec.TemplateName, claim.Spec.Replicas, claim.Spec.CreateOnNoStock = "scarce", new(int32(6)), new(true)
	case kind < 15: // has to wait
		claim.Spec.TemplateName, claim.Spec.Replicas = "scarce", new(int32(3))
	default:
		claim.Spec.TemplateName, claim.Spec.Replicas, claim.Spec.OnShortage = "scarce", new(int32(4)), v1alpha1.ShortageFail
	}
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Duration(2+chance.IntN(8)) * time.Second}
	claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
	return claim
}

// settle creates a claim and does not rest before it knows what became of it. An
// answer that was lost is asked for by creating the claim again.
func (s *storm) settle(ctx context.Context, claim *v1alpha1.SandboxClaim) {
	lost := false
	for ctx.Err() == nil {
		server := s.server.Load()
		if server == nil {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		answer, code, err := exchange(ctx, server, http.MethodPost, "", claim)
		switch {
		case err != nil || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
			lost = true
			pause(ctx, 10*time.Millisecond)
			continue
		case code == http.StatusConflict && lost:
			// It had come through, or another try of ours has.
			answer, code, err = exchange(ctx, server, http.MethodGet, "/"+claim.Name, nil)
			if err != nil {
				continue
			}
			if code != http.StatusOK {
				s.complain("claim %s exists, but reading it gives %d", claim.Name, code)
				return
			}
			s.record(answer, true)
		case code == http.StatusCreated:
			s.record(answer, false)
		case code == http.StatusTooManyRequests && claim.Spec.OnShortage == v1alpha1.ShortageFail:
			s.refuse(claim.Name)
		default:
			s.complain("creating claim %s gives %d: %+v", claim.Name, code, answer)
		}
		return
	}
}

func (s *storm) record(claim *v1alpha1.SandboxClaim, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered[claim.Name] = claim
	if found {
		s.found++
	}
	s.answers.Add(1)
}

// refuse records a refusal. It holds whatever was lost before: had one of those
// tries stored the claim, this one would have found it.
func (s *storm) refuse(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[name] = true
	s.answers.Add(1)
}

// exchange sends one request about a claim, once: a client library may repeat
// what it thinks was not answered. Any error leaves the outcome open.
func exchange(ctx context.Context, server *server, method, path string, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, int, error) {
	var body []byte
	var err error
	if claim != nil {
		if body, err = json.Marshal(claim); err != nil {
			return nil, 0, err
		}
	}
	url := server.config.Host + namespacePath + crashNamespace + "/sandboxclaims" + path
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.GetBody = nil // nothing to send again from
	req.Header.Set("Content-Type", asJSON)
	resp, err := server.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, err
	}
	answer := &v1alpha1.SandboxClaim{}
	if resp.StatusCode < 300 {
		err = json.Unmarshal(content, answer)
		answer.TypeMeta = metav1.TypeMeta{} // items of lists have none
	}
	return answer, resp.StatusCode, err
}
