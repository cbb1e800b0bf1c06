// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// FilledPool creates the set "pool" and waits until it is full.
func FilledPool(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace string, replicas int32) {
	t.Helper()
	if _, err := agents.SandboxSets(namespace).Create(t.Context(), builders.Set("pool", replicas), metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating the pool: %v", err)
	}
	FullPool(t, agents, namespace, "pool", replicas)
}

// FullPool waits until a set has as many available sandboxes as it is to have,
// none beside them, and says so.
func FullPool(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace, name string, replicas int32) {
	t.Helper()
	Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := agents.SandboxSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := set.Status
		if status.Replicas != replicas || status.AvailableReplicas != replicas || status.ObservedGeneration != set.Generation {
			return fmt.Errorf("set %s of %d has the status %+v", name, replicas, status)
		}
		// The status follows a claim with a delay.
		list, err := agents.Sandboxes(namespace).List(ctx, metav1.ListOptions{LabelSelector: status.Selector})
		if err != nil {
			return err
		}
		unused, available := 0, 0
		for i := range list.Items {
			sandbox := &list.Items[i]
			if !metav1.IsControlledBy(sandbox, set) {
				continue
			}
			unused++
			if state := v1alpha1.StateOf(sandbox, time.Now()); state == v1alpha1.StateAvailable && sandbox.Annotations[v1alpha1.AnnotationLock] == "" {
				available++
			}
		}
		if unused != int(replicas) || available != int(replicas) {
			return fmt.Errorf("set %s of %d has %d unused sandboxes, %d available", name, replicas, unused, available)
		}
		return nil
	})
}

// ClaimTimes claims n sandboxes of the set "pool" of 2n one by one, and waits until it is full again. It returns how long
// the claims took, the shortest time first. All of them have to be answered at once.
func ClaimTimes(t testing.TB, agents typed.AgentsV1alpha1Interface, namespace string, n int) []time.Duration {
	t.Helper()
	var took []time.Duration
	for range n {
		claim := builders.Claim("", 1)
		claim.GenerateName = "claim-"
		began := time.Now()
		created, err := agents.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		took = append(took, time.Since(began))
		if err != nil {
			t.Fatalf("a claim after %s: %v", took[len(took)-1], err)
		}
		Claimed(t, created, 1)
	}
	FullPool(t, agents, namespace, "pool", int32(2*n))
	slices.Sort(took)
	return took
}

// Claimed requires that a claim is Completed with so many sandboxes, each with
// an address, and returns their names.
func Claimed(t testing.TB, claim *v1alpha1.SandboxClaim, replicas int) []string {
	t.Helper()
	status := &claim.Status
	if status.Phase != v1alpha1.SandboxClaimPhaseCompleted || int(status.ClaimedReplicas) != replicas || len(status.Sandboxes) != replicas {
		t.Fatalf("claim %s is not Completed with %d sandboxes: %+v", claim.Name, replicas, status)
	}
	var names []string
	for _, sandbox := range status.Sandboxes {
		if sandbox.Name == "" || len(sandbox.PodIPs) == 0 {
			t.Errorf("claim %s names a sandbox %q with addresses %q", claim.Name, sandbox.Name, sandbox.PodIPs)
		}
		names = append(names, sandbox.Name)
	}
	slices.Sort(names)
	if distinct := slices.Compact(slices.Clone(names)); len(distinct) != len(names) {
		t.Errorf("claim %s names a sandbox twice: %q", claim.Name, names)
	}
	return names
}
