// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// storm lets clients create claims until n are created, and then hands every answer to
// answer. A refusal is an answer.
func storm(t *testing.T, s *testutil.Server, clients, n int, claim func(i int) *v1alpha1.SandboxClaim,
	answer func(*v1alpha1.SandboxClaim, error)) {
	t.Helper()
	all := &load.Storm{
		Namespace: namespace, Clients: clients, Total: n,
		Claim: func(_, i int) *v1alpha1.SandboxClaim { return claim(i) },
	}
	all.Start(t, s.Client.AgentsV1alpha1).Finish()
	for _, told := range all.Answers() {
		answer(told.Claim, nil)
	}
	for _, failure := range append(all.Refusals(), all.Failures()...) {
		answer(nil, failure.Err)
	}
	for _, err := range all.Complaints() {
		t.Error(err)
	}
}

func TestStormBindsEachSandboxOnce(t *testing.T) {
	clients, n, stock := 64, expect.Many(600, 2000), expect.Many(450, 1500)
	s, set := stocked(t, stock, withSyncWindow(time.Millisecond))
	var bound, refused, waiting atomic.Int64
	storm(t, s, clients, n,
		func(i int) *v1alpha1.SandboxClaim {
			name := fmt.Sprintf("c-%04d", i)
			if i%2 == 0 {
				return testutil.Claim(set, name, 1, fails)
			}
			return testutil.Claim(set, name, 1, both(waits, timeout(5*time.Second)))
		},
		func(claim *v1alpha1.SandboxClaim, err error) {
			switch {
			case apierrors.IsTooManyRequests(err):
				refused.Add(1)
			case err != nil:
				t.Errorf("creating: %v", err)
			case claim.Status.ClaimedReplicas == 1:
				bound.Add(1)
			default:
				waiting.Add(1)
			}
		})
	if refused.Load() == 0 || waiting.Load() == 0 {
		t.Errorf("%d refused, %d waiting: one of the policies was not tried", refused.Load(), waiting.Load())
	}
	// A claim that waits may be served after its call was answered.
	list, err := claims(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var served, unserved int
	for _, claim := range list.Items {
		switch ended := s.AwaitClaim(t, namespace, claim.Name, testutil.Completed); {
		case ended.Status.ClaimedReplicas == 1:
			served++
		case isTrue(ended, v1alpha1.ClaimConditionTimedOut):
			unserved++
		default:
			t.Errorf("claim %s ends with %q", ended.Name, ended.Status.Message)
		}
	}
	if served != stock || unserved+int(refused.Load()) != n-stock {
		t.Errorf("%d served, %d refused, %d timed out; want %d served of %d", served, refused.Load(), unserved, stock, n)
	}
	checkInvariants(t, s)
}

func TestStormNeverLeavesAPart(t *testing.T) {
	const clients, n, stock, each = 20, 40, 100, 7
	s, set := stocked(t, stock)
	var served, refused atomic.Int64
	storm(t, s, clients, n,
		func(i int) *v1alpha1.SandboxClaim {
			return testutil.Claim(set, fmt.Sprintf("c-%04d", i), each, both(fails, allOrNothing))
		},
		func(claim *v1alpha1.SandboxClaim, err error) {
			switch {
			case apierrors.IsTooManyRequests(err):
				refused.Add(1)
			case err != nil:
				t.Errorf("creating: %v", err)
			case claim.Status.ClaimedReplicas != each || testutil.Completed(claim) != "":
				t.Errorf("claim %s is answered with %d of %d", claim.Name, claim.Status.ClaimedReplicas, each)
			default:
				served.Add(1)
			}
		})
	if served.Load() != stock/each || refused.Load() != n-stock/each {
		t.Errorf("%d served, %d refused; want %d and %d", served.Load(), refused.Load(), stock/each, n-stock/each)
	}
	checkInvariants(t, s)
}

func TestStormOnTwoServers(t *testing.T) {
	const clients, n, stock = 32, 600, 400
	one, set := stocked(t, stock)
	two := testutil.Start(t, testutil.WithEtcd(one.EtcdServers))
	var bound, refused atomic.Int64
	count := func(claim *v1alpha1.SandboxClaim, err error) {
		switch {
		case apierrors.IsTooManyRequests(err):
			refused.Add(1)
		case err != nil:
			t.Errorf("creating: %v", err)
		case claim.Status.ClaimedReplicas == 1:
			bound.Add(1)
		}
	}
	var both sync.WaitGroup
	for name, server := range map[string]*testutil.Server{"one": one, "two": two} {
		both.Go(func() {
			storm(t, server, clients/2, n/2, func(i int) *v1alpha1.SandboxClaim {
				return testutil.Claim(set, fmt.Sprintf("%s-%04d", name, i), 1, fails)
			}, count)
		})
	}
	both.Wait()
	if bound.Load() != stock || refused.Load() != n-stock {
		t.Errorf("%d bound, %d refused; want %d and %d", bound.Load(), refused.Load(), stock, n-stock)
	}
	checkInvariants(t, one)
}
