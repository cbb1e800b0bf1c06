// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// as returns the claims of a user.
func as(t *testing.T, s *testutil.Server, user string) typed.SandboxClaimInterface {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.AgentsV1alpha1().SandboxClaims(namespace)
}

// createAs creates a claim of a user that waits for n sandboxes of a set.
func createAs(t *testing.T, s *testutil.Server, user string, set *v1alpha1.SandboxSet, name string, n int32) *v1alpha1.SandboxClaim {
	t.Helper()
	claim, err := as(t, s, user).Create(t.Context(), testutil.Claim(set, name, n, both(waits, timeout(4*expect.Patience))), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestUsersTakeTurns: a claim of thousands takes all that comes while it waits alone,
// and no more than its turn once another user waits.
func TestUsersTakeTurns(t *testing.T) {
	s, set := stocked(t, 3, withSyncWindow(time.Millisecond))
	createAs(t, s, "ann", set, "huge", 10000)
	has := func(name string, n int32) func(*v1alpha1.SandboxClaim) string {
		return func(claim *v1alpha1.SandboxClaim) string {
			if got := claim.Status.ClaimedReplicas; got != n {
				return fmt.Sprintf("%s has %d, want %d", name, got, n)
			}
			return ""
		}
	}
	s.AwaitClaim(t, namespace, "huge", has("huge", 3))
	s.Stock(t, set, 3, 2)
	s.AwaitClaim(t, namespace, "huge", has("huge", 5))
	createAs(t, s, "ann", set, "another", 1)
	createAs(t, s, "bob", set, "small", 1)
	createAs(t, s, "bob", set, "pair", 2)

	// One by one, so that each is dealt before the next comes.
	next := 5
	claimed := func() int {
		total := 0
		for _, name := range []string{"huge", "another", "small", "pair"} {
			claim, err := claims(s).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			total += int(claim.Status.ClaimedReplicas)
		}
		return total
	}
	for range 6 {
		s.Stock(t, set, next, 1)
		next++
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if got := claimed(); got != next {
				return fmt.Errorf("%d of %d sandboxes are claimed", got, next)
			}
			return nil
		})
	}
	// Three of these six are of each; bob's came in the order in which he asked.
	s.AwaitClaim(t, namespace, "small", testutil.Completed)
	s.AwaitClaim(t, namespace, "pair", testutil.Completed)
	s.AwaitClaim(t, namespace, "huge", has("huge", 8))
	s.AwaitClaim(t, namespace, "another", has("another", 0))
	checkInvariants(t, s)
}

// TestTooManyWaiting: what would have to wait is refused, and nothing else.
func TestTooManyWaiting(t *testing.T) {
	const most = 2 // of one user: half of the places
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond), testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.MaxWaitingClaims = 2 * most }))
	waiting := both(waits, timeout(4*expect.Patience))
	for i := range most {
		create(t, s, testutil.Claim(set, fmt.Sprint("waits-", i), 2, waiting))
	}
	for name, change := range map[string]func(*v1alpha1.SandboxClaim){
		"for a set":               func(*v1alpha1.SandboxClaim) {},
		"for all or nothing":      allOrNothing,
		"for what does not exist": func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "missing" },
		"and would make its own of nothing": func(c *v1alpha1.SandboxClaim) {
			c.Spec.TemplateName, c.Spec.CreateOnNoStock = "missing", nil
		},
	} {
		_, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "late", 2, both(waiting, change)))
		after, hasAfter := apierrors.SuggestsClientDelay(err)
		if !apierrors.IsTooManyRequests(err) || !hasAfter || after < 1 || !apierrors.HasStatusCause(err, v1alpha1.CauseTooManyWaiting) ||
			!strings.Contains(err.Error(), fmt.Sprint("namespace ", namespace, ", which has places for ", 2*most)) {
			t.Errorf("a claim that waits %s is answered %v", name, err)
		}
		if _, err := claims(s).Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a claim that waits %s is stored: %v", name, err)
		}
	}
	// A client that tries again, because the first answer was lost, gets AlreadyExists.
	if _, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "waits-0", 2, waiting)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a claim that waits already is answered %v", err)
	}
	other := s.Set(t, namespace, "other", 3)
	s.Stock(t, other, 0, 3)
	if claim := create(t, s, testutil.Claim(other, "served", 3, waiting)); testutil.Completed(claim) != "" {
		t.Errorf("with stock it is answered %+v", claim.Status)
	}
	create(t, s, testutil.Claim(set, "makes-its-own", 2, timeout(4*expect.Patience)))
	elsewhere := testutil.Claim(set, "elsewhere", 2, waiting)
	elsewhere.Namespace = "elsewhere"
	if _, err := s.CreateOnce(t.Context(), "elsewhere", elsewhere); err != nil {
		t.Errorf("in another namespace it is answered %v", err)
	}
	s.Stock(t, set, 10, 1)
	s.AwaitClaim(t, namespace, "waits-0", testutil.Completed)
	create(t, s, testutil.Claim(set, "late", 2, waiting))
	checkInvariants(t, s)
}

// TestFewCreatesWait: beyond that they are answered Claiming at once, and those who came
// before continue waiting.
func TestFewCreatesWait(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(expect.Patience/4), testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.MaxWaitingCreates = 1 }))
	answered := make(chan *v1alpha1.SandboxClaim, 1)
	waiting := both(waits, timeout(4*expect.Patience))
	go func() {
		claim, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "first", 1, waiting))
		if err != nil {
			t.Errorf("creating: %v", err)
		}
		answered <- claim
	}()
	s.AwaitClaim(t, namespace, "first", func(*v1alpha1.SandboxClaim) string { return "" })
	second := create(t, s, testutil.Claim(set, "second", 1, waiting))
	if second.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
		t.Errorf("the second is answered %+v", second.Status)
	}
	select {
	case claim := <-answered:
		t.Fatalf("the first was answered before the second: %+v", claim.Status)
	default:
	}
	s.Stock(t, set, 0, 2)
	if claim := <-answered; testutil.Completed(claim) != "" {
		t.Errorf("the first is answered %+v", claim.Status)
	}
	s.AwaitClaim(t, namespace, "second", testutil.Completed)
	checkInvariants(t, s)
}
