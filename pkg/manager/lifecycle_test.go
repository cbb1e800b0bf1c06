// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// awaitCondition waits until a condition of a claim has a status and a reason.
func awaitCondition(t *testing.T, api typed.AgentsV1alpha1Interface, name, kind string, status metav1.ConditionStatus, reason string) *v1alpha1.SandboxClaim {
	t.Helper()
	var claim *v1alpha1.SandboxClaim
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		claim, err = api.SandboxClaims(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(claim.Status.Conditions, kind); c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("%s of claim %s is %+v", kind, name, c)
		}
		return nil
	})
	return claim
}

// withLifecycle creates a claim of two sandboxes, which has to be Completed in the answer.
func withLifecycle(t *testing.T, api typed.AgentsV1alpha1Interface, name string, lifecycle *v1alpha1.SandboxClaimLifecycle) *v1alpha1.SandboxClaim {
	t.Helper()
	claim, err := api.SandboxClaims(ns).Create(t.Context(), &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: "pool", Replicas: new(int32(2)), Lifecycle: lifecycle},
	}, metav1.CreateOptions{})
	if err != nil || claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		t.Fatalf("claimed %+v, %v", claim.Status, err)
	}
	return claim
}

// fail lets a simulated sandbox fail, as the loss of a pod does.
func fail(t *testing.T, api typed.AgentsV1alpha1Interface, name string) {
	t.Helper()
	if _, err := api.Sandboxes(ns).Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed","message":"Pod Not Found"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func patchSandbox(t *testing.T, api typed.AgentsV1alpha1Interface, name, patch string) {
	t.Helper()
	if _, err := api.Sandboxes(ns).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A claim is ready as its sandboxes are, without a cluster too: paused, resumed, failed,
// gone. One that nothing happens to is not written.
func TestClaimsFollowTheirSandboxes(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true, SimulatedStartDelay: 10 * time.Millisecond}})
	api := server.Client.AgentsV1alpha1()
	if _, err := api.SandboxSets(ns).Create(t.Context(), newSet("pool", "a", 4), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, "pool", available(4))
	still := withLifecycle(t, api, "still", nil)
	claim := withLifecycle(t, api, "c", nil)
	a, b := claim.Status.Sandboxes[0].Name, claim.Status.Sandboxes[1].Name
	ready := v1alpha1.ClaimConditionReady

	patchSandbox(t, api, a, `{"spec":{"paused":true}}`)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		paused := awaitCondition(t, api, "c", ready, metav1.ConditionFalse, v1alpha1.ReasonSandboxPaused)
		if ips := paused.Status.Sandboxes[0].PodIPs; len(ips) > 0 {
			return fmt.Errorf("a paused sandbox has the addresses %s", ips)
		}
		return nil
	})
	patchSandbox(t, api, a, `{"spec":{"paused":false}}`)
	awaitCondition(t, api, "c", ready, metav1.ConditionTrue, v1alpha1.ReasonAllReplicasClaimed)
	fail(t, api, a)
	awaitCondition(t, api, "c", ready, metav1.ConditionFalse, v1alpha1.ReasonPodFailed)
	fail(t, api, b)
	awaitCondition(t, api, "c", v1alpha1.ClaimConditionFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed)
	for _, name := range []string{a, b} {
		if err := api.Sandboxes(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitCondition(t, api, "c", ready, metav1.ConditionFalse, v1alpha1.ReasonSandboxMissing)
	awaitCondition(t, api, "c", v1alpha1.ClaimConditionFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed)
	if now, err := api.SandboxClaims(ns).Get(t.Context(), "still", metav1.GetOptions{}); err != nil || now.ResourceVersion != still.ResourceVersion {
		t.Errorf("a claim that nothing happened to was written: %v, %+v", err, now.Status)
	}
}

// The end of a claim by each policy, without a cluster: what holds a sandbox holds a claim
// that goes in the foreground, and no other.
func TestLifecyclePolicies(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api := server.Client.AgentsV1alpha1()
	policies := []v1alpha1.ShutdownPolicy{v1alpha1.ShutdownRetain, v1alpha1.ShutdownDelete, v1alpha1.ShutdownDeleteForeground}
	names := map[v1alpha1.ShutdownPolicy]string{
		v1alpha1.ShutdownRetain: "retain", v1alpha1.ShutdownDelete: "delete", v1alpha1.ShutdownDeleteForeground: "foreground",
	}
	size := int32(2*len(policies) + 2)
	if _, err := api.SandboxSets(ns).Create(t.Context(), newSet("pool", "a", size), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, "pool", available(size))
	other := withLifecycle(t, api, "other", nil)
	const hold, letGo = `{"metadata":{"finalizers":["example.com/hold"]}}`, `{"metadata":{"finalizers":null}}`
	held := map[v1alpha1.ShutdownPolicy][]v1alpha1.ClaimedSandbox{}
	for _, policy := range policies {
		claim := withLifecycle(t, api, names[policy], &v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: new(int32(0)), ShutdownPolicy: policy})
		held[policy] = claim.Status.Sandboxes
		patchSandbox(t, api, held[policy][0].Name, hold)
		for _, sandbox := range held[policy] {
			fail(t, api, sandbox.Name)
		}
	}

	awaitGone(t, "delete", api.SandboxClaims(ns).Get)
	awaitCondition(t, api, "retain", v1alpha1.ClaimConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClaimExpired)
	for _, policy := range policies {
		awaitGone(t, held[policy][1].Name, api.Sandboxes(ns).Get)
		sandbox := awaitSandbox(t, api, held[policy][0].Name, func(sandbox *v1alpha1.Sandbox) bool { return sandbox.DeletionTimestamp != nil })
		if sandbox.UID != held[policy][0].UID {
			t.Errorf("%s: another sandbox %s", policy, sandbox.Name)
		}
	}
	foreground, err := api.SandboxClaims(ns).Get(t.Context(), "foreground", metav1.GetOptions{})
	if err != nil || foreground.DeletionTimestamp == nil {
		t.Fatalf("the claim of a sandbox that is held: %+v, %v", foreground, err)
	}
	for _, policy := range policies {
		patchSandbox(t, api, held[policy][0].Name, letGo)
		awaitGone(t, held[policy][0].Name, api.Sandboxes(ns).Get)
	}
	awaitGone(t, "foreground", api.SandboxClaims(ns).Get)
	retained := awaitCondition(t, api, "retain", v1alpha1.ClaimConditionFinished, metav1.ConditionTrue, v1alpha1.ReasonPodFailed)
	if !v1alpha1.HasExpired(retained) || retained.Status.ClaimedReplicas != 2 {
		t.Errorf("the claim that is kept: %+v", retained.Status)
	}
	for _, sandbox := range other.Status.Sandboxes {
		if _, err := api.Sandboxes(ns).Get(t.Context(), sandbox.Name, metav1.GetOptions{}); err != nil {
			t.Errorf("a sandbox of another claim: %v", err)
		}
	}
}
