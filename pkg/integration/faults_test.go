// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// knows waits until the server has heard of n sandboxes of a set.
func knows(t *testing.T, s *testutil.Server, set *v1alpha1.SandboxSet, n int32) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		shown, err := claims(s).Create(ctx, testutil.Claim(set, "known", n, waits), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && shown.Status.ClaimedReplicas != n {
			err = fmt.Errorf("the server knows of %d sandboxes of set %s, want %d", shown.Status.ClaimedReplicas, set.Name, n)
		}
		return err
	})
}

// A set that is gone serves no claim, although its sandboxes are still there, and a set of
// the same name is another one.
func TestSandboxesOfADeletedSet(t *testing.T) {
	s, old := stocked(t, 9)
	knows(t, s, old, 9)
	sets := s.Client.AgentsV1alpha1().SandboxSets(namespace)
	if err := sets.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	refused := func(when string, want func(error) bool, text string) {
		t.Helper()
		for range 3 {
			n++
			if _, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(old, fmt.Sprintf("c-%d", n), 1, fails)); !want(err) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %v, want %q", when, err, text)
			}
			time.Sleep(200 * time.Millisecond) // whatever the watch of sets has told by then
		}
	}
	// The watch may report it a moment later. A dry run takes nothing.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if _, err := s.CreateOnce(ctx, namespace, testutil.Claim(old, "dry", 1, fails), metav1.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a dry run is answered %w", err)
		}
		return nil
	})
	refused("the set is gone", apierrors.IsInvalid, "spec.templateName")
	next := s.Set(t, namespace, old.Name, 1)
	refused("a new set has no sandbox yet", apierrors.IsTooManyRequests, "has 0 of 1")
	s.Stock(t, next, 10, 1)
	claim := create(t, s, testutil.Claim(next, "mine", 1, fails))
	if got := claim.Status.Sandboxes[0].Name; got != "pool-000010" {
		t.Errorf("got sandbox %s, want that of the new set", got)
	}
	refused("the sandbox of the new set is claimed", apierrors.IsTooManyRequests, "has 0 of 1")
	checkInvariants(t, s)
}

// countClaims is admission that counts the claims that it is asked about, as a quota does.
type countClaims struct{ n atomic.Int64 }

func (*countClaims) Handles(o admission.Operation) bool { return o == admission.Create }

func (c *countClaims) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().Kind == "SandboxClaim" {
		c.n.Add(1)
	}
	return nil
}

// Stock that is kept for a claim that waits is not there for others. They get an
// error, and before a quota is charged.
func TestStockThatIsKeptForOthersIsNotAvailable(t *testing.T) {
	charged := &countClaims{}
	s := start(t, withSyncWindow(time.Millisecond), testutil.WithConfig(func(c *apiserver.Config) { c.GenericConfig.AdmissionControl = charged }))
	set := s.Set(t, namespace, "pool", 5)
	s.Stock(t, set, 0, 1)
	knows(t, s, set, 1)
	create(t, s, testutil.Claim(set, "first", 3, both(waits, allOrNothing, timeout(expect.Patience))))
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if _, err := s.CreateOnce(ctx, namespace, testutil.Claim(set, "second", 1, fails), metav1.DryRunAll); err == nil {
			return errors.New("the first claim does not stand in line yet")
		}
		return nil
	})
	before := charged.n.Load()
	for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
		_, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "second", 1, fails), dryRun...)
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "has 0 of 1 sandboxes available") {
			t.Errorf("dry run %q: got %v, want to hear that 0 of 1 are available", dryRun, err)
		}
		if dryRun == nil && charged.n.Load() != before {
			t.Error("admission was asked about a claim that must fail, which charges a quota")
		}
	}
	s.Stock(t, set, 1, 2)
	s.AwaitClaim(t, namespace, "first", testutil.Completed)
	checkInvariants(t, s)
}

// A failed sandbox that is kept for debugging is not the claim's, also if it becomes
// ready late and another server takes the claim up.
func TestReservedSandboxDoesNotCountAfterARestart(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
	create(t, s, testutil.Claim(set, "cold", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.ReserveFailedSandbox = true
		timeout(expect.Patience)(c)
	}))
	failed := freshOf(t, s, 1)[0]
	setStatus(t, s, &failed, v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxFailed})
	var next *v1alpha1.Sandbox
	for _, sb := range freshOf(t, s, 2) {
		if sb.Name != failed.Name {
			next = &sb
		}
	}
	reserved, err := sandboxes(s).Get(t.Context(), failed.Name, metav1.GetOptions{})
	if err != nil || reserved.Labels[v1alpha1.LabelReservedFailedSandbox] != "true" {
		t.Fatalf("the failed sandbox is not reserved: %v, %v", reserved.Labels, err)
	}
	setStatus(t, s, reserved, testutil.ReadyStatus(1, time.Now()))
	s = restart(t, s)
	time.Sleep(time.Second)
	if claim, err := claims(s).Get(t.Context(), "cold", metav1.GetOptions{}); err != nil || claim.Status.ClaimedReplicas != 0 {
		t.Errorf("the claim counts what failed before: %+v, %v", claim.Status, err)
	}
	setStatus(t, s, next, testutil.ReadyStatus(2, time.Now()))
	claim := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if len(claim.Status.Sandboxes) != 1 || claim.Status.Sandboxes[0].Name != next.Name {
		t.Errorf("ends with %+v, want %s", claim.Status, next.Name)
	}
	checkInvariants(t, s)
}

// spoilsMade is admission that makes the sandboxes that are made for claims invalid.
type spoilsMade struct{}

func (spoilsMade) Handles(o admission.Operation) bool { return o == admission.Create }

func (spoilsMade) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if sb, ok := a.GetObject().(*v1alpha1.Sandbox); ok {
		sb.Spec.Template = nil
	}
	return nil
}

// Admission can make a sandbox invalid that is made for a claim. The claim is refused,
// and nothing is written.
func TestAdmissionThatSpoilsMadeSandboxes(t *testing.T) {
	s, set := stocked(t, 1, testutil.WithConfig(func(c *apiserver.Config) { c.GenericConfig.AdmissionControl = spoilsMade{} }))
	knows(t, s, set, 1)
	before := readAll(t, s)
	_, err := claims(s).Create(t.Context(), testutil.Claim(set, "spoiled", 3, nil), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec") {
		t.Errorf("got %v, want Invalid", err)
	}
	if diff := cmp.Diff(before, readAll(t, s)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	create(t, s, testutil.Claim(set, "warm", 1, fails)) // it went back into the pool
	checkInvariants(t, s)
}

// While a watch cache begins again, as after a restart, a claim that has to look at what is
// there is asked to come again, and nothing is written.
func TestClaimsWhileTheCacheIsNotReady(t *testing.T) {
	s, set := stocked(t, 1)
	s.Stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for resource, key := range map[string]string{
		"sandboxes":   options.EtcdPrefix + "/agents.kruise.io/sandboxes/elsewhere/broken",
		"sandboxsets": options.EtcdPrefix + "/agents.kruise.io/sandboxsets/elsewhere/broken",
	} {
		if _, err := client.Put(t.Context(), key, "{"); err != nil { // no cache can be made of it
			t.Fatal(err)
		}
		s = testutil.Start(t, testutil.WithEtcd(s.EtcdServers), testutil.Unready())
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			_, err := s.CreateOnce(t.Context(), namespace, testutil.Claim(set, "mine", 1, fails), dryRun...)
			_, told := apierrors.SuggestsClientDelay(err)
			if !apierrors.IsTooManyRequests(err) || !told || apierrors.HasStatusCause(err, v1alpha1.CauseShortage) {
				t.Errorf("%s cannot be read, dry run %q: got %v, want to be told to come again", resource, dryRun, err)
			}
		}
		if _, err := client.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		s.Stop()
	}
	s = testutil.Start(t, testutil.WithEtcd(s.EtcdServers))
	create(t, s, testutil.Claim(set, "mine", 1, fails))
	checkInvariants(t, s)
}
