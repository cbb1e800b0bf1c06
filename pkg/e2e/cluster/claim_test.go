// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestClaim claims through the aggregator with client-go: the answer says what
// there is, and that is Pods of the sandboxes.
func TestClaim(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 4)

	created := c.claim(t, ns, builders.Claim("claim", 2))

	for _, claimed := range created.Status.Sandboxes {
		pod := c.pod(t, ns, claimed.Name)
		sandbox, err := c.Sandboxes(ns).Get(t.Context(), claimed.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !metav1.IsControlledBy(pod, sandbox) {
			t.Errorf("pod %s is not owned by its sandbox: %+v", pod.Name, pod.OwnerReferences)
		}
		if !slices.Contains(claimed.PodIPs, pod.Status.PodIP) {
			t.Errorf("the claim says that sandbox %s is at %v, its pod at %s", claimed.Name, claimed.PodIPs, pod.Status.PodIP)
		}
		if sandbox.Annotations[v1alpha1.AnnotationOwner] != string(created.UID) {
			t.Errorf("sandbox %s does not name its claim: %+v", claimed.Name, sandbox.ObjectMeta)
		}
	}
	expect.FullPool(t, c, ns, "pool", 4) // is filled up again
}

// TestClaimWithKubectl does the same with kubectl, as a user who may claim and
// nothing else.
func TestClaimWithKubectl(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	kubectl(t, ns, strings.ReplaceAll(builders.PoolYAML, "pool", "python"), "apply", "-f", "-")
	expect.FullPool(t, c, ns, "python", 3)
	claimer, err := plane.UserKubeconfig("claimer")
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.ReplaceAll(builders.ClaimYAML, "pool", "python")
	if _, err := tryKubectl(t, claimer, ns, manifest, "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), `User "claimer" cannot create`) {
		t.Errorf("got %v, want that it is forbidden", err)
	}
	grant(t, ns, "sandlot-claimer", "claimer")

	var created, read v1alpha1.SandboxClaim
	expect.Eventually(t.Context(), t, func(context.Context) error { // rights take a moment to be known
		out, err := tryKubectl(t, claimer, ns, manifest, "create", "-f", "-", "-o", "json")
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(out), &created)
	})
	names := expect.Claimed(t, &created, 1)
	out, err := tryKubectl(t, claimer, ns, "", "get", "sbc", "claim", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &read); err != nil {
		t.Fatal(err)
	}
	if got := expect.Claimed(t, &read, 1); !slices.Equal(got, names) {
		t.Errorf("created with %q, read with %q", names, got)
	}
	kubectl(t, ns, "", "get", "pod", names[0])
}
