// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/generated/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/generated/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

const ns = "default"

// run starts a manager and stops it with the test.
func run(t *testing.T, cfg *rest.Config, o manager.Options) {
	t.Helper()
	mgr, err := manager.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
}

// eventually waits until the condition holds, however slow the machine is.
func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func newSet(name, image string, replicas int32) *v1alpha1.SandboxSet {
	return &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: v1alpha1.SandboxSetSpec{
			Replicas: &replicas,
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)},
			},
		},
	}
}

// The life of a pool, with everything running: filled, claimed from, refilled,
// updated, shrunk, deleted.
func TestLifeOfAPool(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api := server.Client.AgentsV1alpha1()
	ctx := t.Context()

	if _, err := api.SandboxSets(ns).Create(ctx, newSet("pool", "a", 10), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	full := func(want int32) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			set, err := api.SandboxSets(ns).Get(ctx, "pool", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			s := set.Status
			return s.ObservedGeneration == set.Generation &&
				s.Replicas == want && s.AvailableReplicas == want && s.UpdatedAvailableReplicas == want, nil
		}
	}
	eventually(t, "filled", full(10))

	claim := claimOf(ctx, t, api, "keeps", 4, v1alpha1.ReclaimRetain)
	if claim.Status.ClaimedReplicas != 4 {
		t.Fatalf("claimed %+v", claim.Status)
	}
	gone := claimOf(ctx, t, api, "goes", 3, v1alpha1.ReclaimDelete)
	eventually(t, "refilled", full(10))

	// The sandboxes of a claim with reclaimPolicy Delete go with it.
	if err := api.SandboxClaims(ns).Delete(ctx, gone.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range gone.Status.Sandboxes {
		eventually(t, "deleted with its claim: "+sandbox.Name, func(ctx context.Context) (bool, error) {
			_, err := api.Sandboxes(ns).Get(ctx, sandbox.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), ignoreNotFound(err)
		})
	}

	set, err := api.SandboxSets(ns).Patch(ctx, "pool", "application/merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"b"}]}}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := set.Status.UpdateRevision
	eventually(t, "updated", full(10))
	set, err = api.SandboxSets(ns).Get(ctx, "pool", metav1.GetOptions{})
	if err != nil || set.Status.UpdateRevision == before {
		t.Fatalf("revision %s before and %s after the update, %v", before, set.Status.UpdateRevision, err)
	}

	if _, err := api.SandboxSets(ns).Patch(ctx, "pool", "application/merge-patch+json",
		[]byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shrunk", full(2))

	if err := api.SandboxSets(ns).Delete(ctx, "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the claimed ones are left", func(ctx context.Context) (bool, error) {
		list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return len(list.Items) == 4, nil
	})
	for _, sandbox := range claim.Status.Sandboxes {
		if _, err := api.Sandboxes(ns).Get(ctx, sandbox.Name, metav1.GetOptions{}); err != nil {
			t.Errorf("claimed sandbox: %v", err)
		}
	}
}

func claimOf(ctx context.Context, t *testing.T, api typed.AgentsV1alpha1Interface, name string, n int32, p v1alpha1.ReclaimPolicy) *v1alpha1.SandboxClaim {
	t.Helper()
	claim, err := api.SandboxClaims(ns).Create(ctx, &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SandboxClaimSpec{
			TemplateName: "pool", Replicas: &n, ReclaimPolicy: p, CreateOnNoStock: new(false),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Claims that expire and sandboxes whose time has come go by themselves.
func TestTimers(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api := server.Client.AgentsV1alpha1()
	ctx := t.Context()

	if _, err := api.SandboxSets(ns).Create(ctx, newSet("pool", "a", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shutdown := metav1.NewTime(time.Now().Add(2 * time.Second))
	claim, err := api.SandboxClaims(ns).Create(ctx, &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "short"},
		Spec: v1alpha1.SandboxClaimSpec{
			TemplateName: "pool", CreateOnNoStock: new(false), ShutdownTime: &shutdown,
			TTLAfterCompleted: &metav1.Duration{Duration: time.Second},
		},
	}, metav1.CreateOptions{})
	if err != nil || len(claim.Status.Sandboxes) != 1 {
		t.Fatalf("claimed %+v, %v", claim.Status, err)
	}
	eventually(t, "claim expired", func(ctx context.Context) (bool, error) {
		_, err := api.SandboxClaims(ns).Get(ctx, "short", metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
	eventually(t, "sandbox shut down", func(ctx context.Context) (bool, error) {
		_, err := api.Sandboxes(ns).Get(ctx, claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
}

// Sandboxes are paused at their time and resumed, in the absence of a cluster too.
func TestPause(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true, SimulatedStartDelay: 10 * time.Millisecond}})
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(ns)
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "box"}}
	sandbox.Spec.Template = newSet("", "a", 0).Spec.Template
	sandbox.Spec.PauseTime = new(metav1.NewTime(time.Now().Add(2 * time.Second)))
	if _, err := sandboxes.Create(t.Context(), sandbox, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	inPhase := func(phase v1alpha1.SandboxPhase) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			got, err := sandboxes.Get(ctx, "box", metav1.GetOptions{})
			return err == nil && got.Status.Phase == phase, err
		}
	}
	eventually(t, "paused", inPhase(v1alpha1.SandboxPaused))
	if _, err := sandboxes.Patch(t.Context(), "box", "application/merge-patch+json",
		[]byte(`{"spec":{"paused":false,"pauseTime":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "resumed", inPhase(v1alpha1.SandboxRunning))
}

// Sandboxes of a template that always fails are replaced again and again, more and
// more slowly, and the set says that nothing is available.
func TestFailingTemplate(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true, SimulatedStartDelay: 50 * time.Millisecond}})
	api := server.Client.AgentsV1alpha1()
	if _, err := api.SandboxSets(ns).Create(t.Context(), newSet("bad", simulated.FailImage, 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	eventually(t, "replaced", func(ctx context.Context) (bool, error) {
		list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, sandbox := range list.Items {
			names[sandbox.Name] = true
		}
		set, err := api.SandboxSets(ns).Get(ctx, "bad", metav1.GetOptions{})
		return len(names) > 6, validate(set, err)
	})
}

func validate(set *v1alpha1.SandboxSet, err error) error {
	if err == nil && set.Status.AvailableReplicas != 0 {
		return fmt.Errorf("%d available", set.Status.AvailableReplicas)
	}
	return err
}

// Two managers of two servers in one process.
func TestTwoManagers(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		server := testutil.Start(t)
		run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
		waitFor(t, server.Client, name)
	}
}

func waitFor(t *testing.T, client versioned.Interface, name string) {
	t.Helper()
	api := client.AgentsV1alpha1().SandboxSets(ns)
	if _, err := api.Create(t.Context(), newSet(name, "a", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, name, func(ctx context.Context) (bool, error) {
		set, err := api.Get(ctx, name, metav1.GetOptions{})
		return err == nil && set.Status.AvailableReplicas == 3, err
	})
}
