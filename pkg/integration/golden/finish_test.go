// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// finish plays the controllers for the claims that were unfinished, whichever those are: it
// stocks their sets, and makes what was made for them ready. Each gets all that it asked
// for.
func finish(t *testing.T, s *testutil.Server) {
	t.Helper()
	agents := s.Client.AgentsV1alpha1()
	claims, err := agents.SandboxClaims("").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Claiming"})
	if err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) == 0 {
		t.Error("no claim is unfinished")
	}
	stock := 1000 // numbers that the store does not have
	for i := range claims.Items {
		claim := &claims.Items[i]
		if *claim.Spec.CreateOnNoStock {
			continue
		}
		set, err := agents.SandboxSets(claim.Namespace).Get(t.Context(), claim.Spec.TemplateName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Stock(t, set, stock, int(*claim.Spec.Replicas))
		stock += 1000
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if err := makeReady(ctx, s); err != nil {
			return err
		}
		for i := range claims.Items {
			claim, err := agents.SandboxClaims(claims.Items[i].Namespace).Get(ctx, claims.Items[i].Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || claim.Status.ClaimedReplicas != *claim.Spec.Replicas {
				return fmt.Errorf("claim %s of %d has the status %+v", claim.Name, *claim.Spec.Replicas, claim.Status)
			}
		}
		return nil
	})
}

// makeReady lets all sandboxes run that were made for claims and are starting.
func makeReady(ctx context.Context, s *testutil.Server) error {
	client := s.Client.AgentsV1alpha1()
	all, err := client.Sandboxes("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		sandbox := &all.Items[i]
		if sandbox.Annotations[v1alpha1.AnnotationOwner] == "" || sandbox.Status.Phase != v1alpha1.SandboxPending {
			continue
		}
		sandbox.Status = testutil.ReadyStatus(50000+i, time.Now())
		if _, err := client.Sandboxes(sandbox.Namespace).UpdateStatus(ctx, sandbox, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

func namespacesOf(t *testing.T, s *testutil.Server) []string {
	t.Helper()
	sets, err := s.Client.AgentsV1alpha1().SandboxSets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var namespaces []string
	for _, set := range sets.Items {
		namespaces = append(namespaces, set.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}
