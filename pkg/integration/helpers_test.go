// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/storecheck"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const namespace = "default"

func start(t *testing.T, opts ...testutil.Option) *testutil.Server {
	t.Helper()
	t.Parallel()
	return testutil.Start(t, opts...)
}

// stocked returns a server with a pool of n available sandboxes, of which the
// index knows at once or a moment later.
func stocked(t *testing.T, n int, opts ...testutil.Option) (*testutil.Server, *v1alpha1.SandboxSet) {
	t.Helper()
	s := start(t, opts...)
	set := s.Set(t, namespace, "pool", int32(n))
	s.Stock(t, set, 0, n)
	return s, set
}

func claims(s *testutil.Server) typed.SandboxClaimInterface {
	return s.Client.AgentsV1alpha1().SandboxClaims(namespace)
}

func sandboxes(s *testutil.Server) typed.SandboxInterface {
	return s.Client.AgentsV1alpha1().Sandboxes(namespace)
}

func create(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	t.Helper()
	created, err := claims(s).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating claim %s: %v", claim.Name, err)
	}
	return created
}

// waits makes a claim wait for stock that is not there.
func waits(claim *v1alpha1.SandboxClaim) {
	claim.Spec.CreateOnNoStock = new(false)
	claim.Spec.OnShortage = v1alpha1.ShortageWait
}

// fails makes a claim fail rather than wait.
func fails(claim *v1alpha1.SandboxClaim) {
	claim.Spec.OnShortage = v1alpha1.ShortageFail
}

// both joins two changes of a claim.
func both(changes ...func(*v1alpha1.SandboxClaim)) func(*v1alpha1.SandboxClaim) {
	return func(claim *v1alpha1.SandboxClaim) {
		for _, change := range changes {
			change(claim)
		}
	}
}

func isTrue(claim *v1alpha1.SandboxClaim, condition string) bool {
	return meta.IsStatusConditionTrue(claim.Status.Conditions, condition)
}

// owned returns the sandboxes that name the claim as their owner.
func owned(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim) []v1alpha1.Sandbox {
	t.Helper()
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var its []v1alpha1.Sandbox
	for _, sb := range list.Items {
		if sb.Annotations[v1alpha1.AnnotationOwner] == string(claim.UID) {
			its = append(its, sb)
		}
	}
	return its
}

// checkInvariants checks expect.Invariants, that the whole store is well, and that the server
// hands out all that is available once no claim waits.
func checkInvariants(t *testing.T, s *testutil.Server) {
	t.Helper()
	allClaims, allSandboxes := expect.Invariants(t, s.Client.AgentsV1alpha1(), namespace)
	checkStore(t, s)
	if !slices.ContainsFunc(allClaims, func(c v1alpha1.SandboxClaim) bool { return testutil.Completed(&c) != "" }) {
		checkNoneLeftTaken(t, s, allSandboxes)
	}
}

// checkStore makes sure that no breach is found in the store of a server by who looks past it.
func checkStore(t *testing.T, s *testutil.Server) {
	t.Helper()
	report, err := storecheck.Run(t.Context(), lookAt(t, s), storecheck.Options{Prefix: options.EtcdPrefix, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if report.Keys == 0 {
		t.Error("nothing is stored")
	}
	for _, f := range report.Findings {
		if f.Level == findings.Error {
			t.Errorf("%s: %s", f.Check, f.Message)
		}
	}
}

// checkNoneLeftTaken makes sure that the server would hand out every sandbox that is
// available: one that it took for a claim and did not bind has gone back. The metric of
// sandboxes that are taken adds up all servers of this process, so a dry run is asked.
func checkNoneLeftTaken(t *testing.T, s *testutil.Server, all []v1alpha1.Sandbox) {
	t.Helper()
	sets, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets.Items {
		var n int32
		for _, sb := range all {
			if _, ok := poolindex.CandidateOf(&sb, time.Now()); ok && metav1.IsControlledBy(&sb, &set) && hasTemplate(t, s, &sb) {
				n++
			}
		}
		if n == 0 {
			continue
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			if _, err := s.CreateOnce(ctx, namespace, testutil.Claim(&set, "all-of-"+set.Name, n, fails), metav1.DryRunAll); err != nil {
				return fmt.Errorf("set %s has %d available sandboxes, and not all can be claimed: %w", set.Name, n, err)
			}
			return nil
		})
	}
}

// hasTemplate reports whether the template of a sandbox is there: without it, no claim can
// claim it.
func hasTemplate(t *testing.T, s *testutil.Server, sb *v1alpha1.Sandbox) bool {
	t.Helper()
	if sb.Spec.TemplateRef == nil {
		return true
	}
	_, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Get(t.Context(), sb.Spec.TemplateRef.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}
