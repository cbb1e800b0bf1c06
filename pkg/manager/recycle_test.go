// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// cleanable is a pod template whose sandboxes may be recycled.
const cleanable = `{"metadata":{"annotations":{"agents.kruise.io/cleanup-enabled":"true","agents.kruise.io/cleanup-retain-on-failure":"1h"}},` +
	`"spec":{"containers":[{"image":"busybox","name":"main"}]}}`

// TestRecycling: a used sandbox is a member of its pool again, on all servers, and its
// former claim has no hand in it.
func TestRecycling(t *testing.T) {
	server := testutil.Start(t)
	second := testutil.Start(t, testutil.WithEtcd(server.EtcdServers))
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api, ctx := server.Client.AgentsV1alpha1(), t.Context()

	set := newSet("pool", "", 2)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(cleanable)}
	if _, err := api.SandboxSets(ns).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, "pool", available(2))
	hold(t, server)

	claim := testutil.Claim(set, "first", 2, nil)
	first, err := api.SandboxClaims(ns).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil || first.Status.ClaimedReplicas != 2 {
		t.Fatalf("claimed %+v, %v", first.Status, err)
	}
	used, kept := first.Status.Sandboxes[0].Name, first.Status.Sandboxes[1].Name
	bound := awaitSandbox(t, api, used, inPhase(v1alpha1.SandboxRunning))
	for _, key := range []string{v1alpha1.AnnotationCleanupEnabled, v1alpha1.AnnotationCleanupRetainOnFailure} {
		if bound.Annotations[key] == "" {
			t.Errorf("a sandbox of the set has not its %s", key)
		}
	}
	ask(t, server, used)
	isBack := func(sb *v1alpha1.Sandbox) bool {
		return sb.Status.Phase == v1alpha1.SandboxRunning && sb.Status.RecycledCount == 1
	}
	back := awaitSandbox(t, api, used, isBack)
	if !v1alpha1.IsInPool(back) || back.Labels[v1alpha1.LabelClaimName] != "" || back.UID != bound.UID {
		t.Errorf("it is %+v", back)
	}
	awaitSet(t, api, "pool", func(s *v1alpha1.SandboxSetStatus) bool { return s.Replicas == 1 && s.AvailableReplicas == 1 })

	// The server that bound it would hand it out again, and another one does.
	atOnce := func(c *v1alpha1.SandboxClaim) { c.Spec.OnShortage = v1alpha1.ShortageFail }
	expect.Eventually(ctx, t, func(ctx context.Context) error {
		_, err := server.CreateOnce(ctx, ns, testutil.Claim(set, "preview", 1, atOnce), metav1.DryRunAll)
		return err
	})
	other := second.Client.AgentsV1alpha1().SandboxClaims(ns)
	next, err := other.Create(ctx, testutil.Claim(set, "second", 1, atOnce), metav1.CreateOptions{})
	if err != nil || len(next.Status.Sandboxes) != 1 || next.Status.Sandboxes[0].Name != used {
		t.Fatalf("the next claim has %+v, %v", next, err)
	}

	// The first claim still lists it, as it does what was deleted; that is all.
	release := &v1alpha1.SandboxClaimRelease{Spec: v1alpha1.SandboxClaimReleaseSpec{SandboxNames: []string{used, kept}}}
	released, err := api.SandboxClaims(ns).Release(ctx, "first", release, metav1.CreateOptions{})
	if err != nil || len(released.Status.Released) != 1 || released.Status.Released[0] != kept {
		t.Errorf("the first claim releases %+v, %v", released, err)
	}
	if sb := awaitSandbox(t, api, used, isBack); sb.DeletionTimestamp != nil || sb.Annotations[v1alpha1.AnnotationOwner] != string(next.UID) {
		t.Errorf("what another claim has is %+v", sb)
	}
}

// TestRecyclingOneTooMany: a pool that was refilled meanwhile gives up what was used, and
// nothing that was not.
func TestRecyclingOneTooMany(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api, ctx := server.Client.AgentsV1alpha1(), t.Context()
	set := newSet("pool", "", 2)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(cleanable)}
	if _, err := api.SandboxSets(ns).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, "pool", available(2))
	claim, err := api.SandboxClaims(ns).Create(ctx, testutil.Claim(set, "first", 1, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var before *v1alpha1.SandboxList
	expect.Eventually(ctx, t, func(ctx context.Context) (err error) {
		unclaimed := metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxClaimed + "=" + v1alpha1.ClaimedFalse}
		if before, err = api.Sandboxes(ns).List(ctx, unclaimed); err == nil && len(before.Items) != 2 {
			err = fmt.Errorf("the pool has %d sandboxes", len(before.Items))
		}
		return err
	})
	awaitSet(t, api, "pool", available(2))
	used := claim.Status.Sandboxes[0].Name
	ask(t, server, used)
	awaitGone(t, used, api.Sandboxes(ns).Get)
	for i := range before.Items {
		if _, err := api.Sandboxes(ns).Get(ctx, before.Items[i].Name, metav1.GetOptions{}); err != nil {
			t.Errorf("a sandbox that was not used is gone: %v", err)
		}
	}
	awaitSet(t, api, "pool", available(2))
}

// TestRecyclingOfAnotherRevision: a set that changed takes nothing back.
func TestRecyclingOfAnotherRevision(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api, ctx := server.Client.AgentsV1alpha1(), t.Context()
	set := newSet("pool", "", 1)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(cleanable)}
	if _, err := api.SandboxSets(ns).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := awaitSet(t, api, "pool", available(1))
	claim, err := api.SandboxClaims(ns).Create(ctx, testutil.Claim(set, "first", 1, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"image":"busybox:2","name":"main"}]}}}}`)
	if _, err := api.SandboxSets(ns).Patch(ctx, "pool", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, "pool", func(s *v1alpha1.SandboxSetStatus) bool { return s.UpdateRevision != before.Status.UpdateRevision })
	used := claim.Status.Sandboxes[0].Name
	ask(t, server, used)
	sb := awaitSandbox(t, api, used, func(sb *v1alpha1.Sandbox) bool { return sb.Spec.ShutdownTime != nil })
	if sb.Annotations[v1alpha1.AnnotationOwner] != string(claim.UID) {
		t.Errorf("it is %+v", sb)
	}
}

// hold keeps the set of these tests from making sandboxes.
func hold(t *testing.T, server *testutil.Server) {
	t.Helper()
	sets := server.Client.AgentsV1alpha1().SandboxSets(ns)
	set, err := sets.Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(0))
	if _, err := sets.Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, server.Client.AgentsV1alpha1(), "pool", func(*v1alpha1.SandboxSetStatus) bool { return true })
}

// ask asks for a sandbox to be recycled.
func ask(t *testing.T, server *testutil.Server, name string) {
	t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"agents.kruise.io/cleanup":"true"}}}`)
	_, err := server.Client.AgentsV1alpha1().Sandboxes(ns).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
