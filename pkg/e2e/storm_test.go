// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// storm is a storm of claims of every kind, on servers that come and go.
type storm struct {
	load.Storm
	servers atomic.Pointer[[]versioned.Interface] // those that there are
	calls   atomic.Uint64
}

// startStorm lets clients create claims as fast as they can.
func startStorm(t testing.TB, seed uint64, servers ...versioned.Interface) *storm {
	t.Helper()
	const clients = 16
	var chances []*rand.Rand // one for each client, which no other uses
	for i := range uint64(clients) {
		chances = append(chances, rand.New(rand.NewPCG(seed, i+1)))
	}
	s := &storm{Storm: load.Storm{Namespace: crashNamespace, Clients: clients}}
	s.Claim = func(client, n int) *v1alpha1.SandboxClaim {
		claim := randomClaim(chances[client], client < 2)
		claim.Name = fmt.Sprintf("w%02d-%04d", client, n)
		return claim
	}
	s.serve(servers...)
	s.Start(t, func() typed.AgentsV1alpha1Interface {
		servers := *s.servers.Load()
		if len(servers) == 0 {
			return nil
		}
		return servers[s.calls.Add(1)%uint64(len(servers))].AgentsV1alpha1()
	})
	return s
}

// serve tells the clients which servers there are, which they call in turns.
func (s *storm) serve(servers ...versioned.Interface) { s.servers.Store(&servers) }

// checkFailures requires that creates failed only because the server was gone: no answer
// came, or one that leaves the outcome open.
func (s *storm) checkFailures(t testing.TB) {
	t.Helper()
	for _, err := range s.Complaints() {
		t.Error(err)
	}
	for _, failure := range s.Failures() {
		if err := failure.Err; apierrors.ReasonForError(err) != metav1.StatusReasonUnknown &&
			!apierrors.IsServiceUnavailable(err) && !apierrors.IsTimeout(err) {
			t.Errorf("creating claim %s: %v", failure.Claim, err)
		}
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
