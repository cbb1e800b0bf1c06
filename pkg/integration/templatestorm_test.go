// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestStormOverThreeSets: thousands of claims on one template empty the set without
// a patch first and then the others by their stock, and bind nothing twice.
func TestStormOverThreeSets(t *testing.T) {
	unit := expect.Many(30, 100)
	clients, plain, large, small, n := expect.Many(20, 64), 7*unit, 11*unit, 5*unit, 19*unit
	s := start(t)
	template := s.Template(t, namespace, "python")
	s.Stock(t, s.SetOf(t, template, "large", spotPatch, int32(large)), 0, large)
	s.Stock(t, s.SetOf(t, template, "plain", "", int32(plain)), 0, plain)
	s.Stock(t, s.SetOf(t, template, "small", spotPatch, int32(small)), 0, small)
	known(t, s, int32(plain+large+small))

	var bound []*v1alpha1.SandboxClaim
	storm(t, s, clients, n,
		func(i int) *v1alpha1.SandboxClaim {
			claim := ofTemplate(fmt.Sprintf("c-%04d", i), "python", 1, fails)
			if i%2 == 0 {
				claim.Spec.TemplateName, claim.Spec.SandboxTemplateRef = "python", nil
			}
			return claim
		},
		func(claim *v1alpha1.SandboxClaim, err error) {
			if err != nil || claim.Status.ClaimedReplicas != 1 {
				t.Errorf("creating: %v, %+v", err, claim)
				return
			}
			bound = append(bound, claim)
		})
	if t.Failed() {
		return
	}
	slices.SortFunc(bound, func(a, b *v1alpha1.SandboxClaim) int { return cmp.Compare(revisionOf(t, a), revisionOf(t, b)) })

	// In the order in which they were bound. Calls overlap, so one that chose before
	// another may be bound after it: by no more places than there are calls at once.
	within := func(what string, got, want int) {
		t.Helper()
		if got < want-clients || got > want+clients {
			t.Errorf("%s: %d, want %d, give or take %d", what, got, want, clients)
		}
	}
	first := pools(bound[:plain]...)
	within("of the first claims, those of the set without a patch", first["plain"], plain)
	if all := pools(bound...); all["plain"] != plain {
		t.Errorf("%d of the set without a patch are bound, want all %d", all["plain"], plain)
	}
	level := large - small // the larger set serves alone until both are level
	second := pools(bound[plain : plain+level]...)
	within("of the claims after that, those of the larger set", second["large"], level)
	third := pools(bound[plain+level:]...)
	within("of the rest, those of the larger set", third["large"], (n-plain-level)/2)
	within("of the rest, those of the smaller set", third["small"], (n-plain-level)/2)
	checkInvariants(t, s)
}

func revisionOf(t *testing.T, claim *v1alpha1.SandboxClaim) int64 {
	t.Helper()
	revision, err := strconv.ParseInt(claim.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// TestStormOverThreeSetsOnTwoServers: batches, all or nothing and not, some of which
// wait, until nothing is left, on two servers with one store.
func TestStormOverThreeSetsOnTwoServers(t *testing.T) {
	expect.LongOnly(t)
	const clients, n, each, stock = 32, 120, 5, 200 // of each of three sets
	one := start(t, withSyncWindow(time.Millisecond))
	template := one.Template(t, namespace, "python")
	for i, patch := range []string{"", spotPatch, spotPatch} {
		one.Stock(t, one.SetOf(t, template, fmt.Sprintf("set%d", i), patch, stock), 0, stock)
	}
	two := testutil.Start(t, testutil.WithEtcd(one.EtcdServers), withSyncWindow(time.Millisecond))
	known(t, one, 3*stock)
	known(t, two, 3*stock)
	var calls sync.WaitGroup
	for name, server := range map[string]*testutil.Server{"one": one, "two": two} {
		calls.Go(func() {
			storm(t, server, clients/2, n/2, func(i int) *v1alpha1.SandboxClaim {
				changes := []func(*v1alpha1.SandboxClaim){waits, timeout(expect.Patience)}
				if i%2 == 0 {
					changes = append(changes, allOrNothing)
				}
				return ofTemplate(fmt.Sprintf("%s-%04d", name, i), "python", each, changes...)
			}, func(_ *v1alpha1.SandboxClaim, err error) {
				if err != nil && !apierrors.IsTooManyRequests(err) {
					t.Errorf("creating: %v", err)
				}
			})
		})
	}
	calls.Wait()
	list, err := claims(one).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range list.Items {
		if ended := one.AwaitClaim(t, namespace, claim.Name, testutil.Completed); ended.Status.ClaimedReplicas != each {
			t.Errorf("claim %s ends with %q", ended.Name, ended.Status.Message)
		}
	}
	checkInvariants(t, one)
}
