// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
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

// awaitSet waits until the status of a set is of its spec, and as it is to be.
func awaitSet(t *testing.T, api typed.AgentsV1alpha1Interface, name string, is func(*v1alpha1.SandboxSetStatus) bool) *v1alpha1.SandboxSet {
	t.Helper()
	var set *v1alpha1.SandboxSet
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		set, err = api.SandboxSets(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (set.Status.ObservedGeneration != set.Generation || !is(&set.Status)) {
			err = fmt.Errorf("set %s of generation %d is %+v", name, set.Generation, set.Status)
		}
		return err
	})
	return set
}

// awaitSandbox waits until a sandbox is as it is to be.
func awaitSandbox(t *testing.T, api typed.AgentsV1alpha1Interface, name string, is func(*v1alpha1.Sandbox) bool) *v1alpha1.Sandbox {
	t.Helper()
	var sandbox *v1alpha1.Sandbox
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		sandbox, err = api.Sandboxes(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !is(sandbox) {
			err = fmt.Errorf("sandbox %s is %+v", name, sandbox.Status)
		}
		return err
	})
	return sandbox
}

// inPhase is a check for awaitSandbox.
func inPhase(phase v1alpha1.SandboxPhase) func(*v1alpha1.Sandbox) bool {
	return func(sandbox *v1alpha1.Sandbox) bool { return sandbox.Status.Phase == phase }
}

// available is a check for awaitSet: the set consists of so many sandboxes, all of which
// are up to date and available.
func available(n int32) func(*v1alpha1.SandboxSetStatus) bool {
	return func(s *v1alpha1.SandboxSetStatus) bool {
		return s.Replicas == n && s.AvailableReplicas == n && s.UpdatedAvailableReplicas == n
	}
}

// awaitGone waits until there is no such object any more.
func awaitGone[T any](t *testing.T, name string, get func(context.Context, string, metav1.GetOptions) (T, error)) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New(name + " is there")
		}
		return err
	})
}

func newSet(name, image string, replicas int32) *v1alpha1.SandboxSet {
	set := builders.Set(name, replicas)
	set.Namespace, set.Spec.Template = ns, builders.PodTemplateOf(image)
	return set
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
	awaitSet(t, api, "pool", available(10))

	claim := claimOf(ctx, t, api, "keeps", 4, v1alpha1.ReclaimRetain)
	if claim.Status.ClaimedReplicas != 4 {
		t.Fatalf("claimed %+v", claim.Status)
	}
	gone := claimOf(ctx, t, api, "goes", 3, v1alpha1.ReclaimDelete)
	awaitSet(t, api, "pool", available(10))

	// The sandboxes of a claim with reclaimPolicy Delete go with it.
	if err := api.SandboxClaims(ns).Delete(ctx, gone.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range gone.Status.Sandboxes {
		awaitGone(t, sandbox.Name, api.Sandboxes(ns).Get)
	}

	set, err := api.SandboxSets(ns).Patch(ctx, "pool", "application/merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"b"}]}}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := set.Status.UpdateRevision
	if set = awaitSet(t, api, "pool", available(10)); set.Status.UpdateRevision == before {
		t.Fatalf("revision %s before and after the update", before)
	}

	if _, err := api.SandboxSets(ns).Patch(ctx, "pool", "application/merge-patch+json",
		[]byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, "pool", available(2))

	if err := api.SandboxSets(ns).Delete(ctx, "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(ctx, t, func(ctx context.Context) error {
		list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 4 {
			err = fmt.Errorf("%d sandboxes are left, want the 4 that are claimed", len(list.Items))
		}
		return err
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
	awaitGone(t, "short", api.SandboxClaims(ns).Get)
	awaitGone(t, claim.Status.Sandboxes[0].Name, api.Sandboxes(ns).Get)
}

// Sandboxes are paused at their time and resumed, in the absence of a cluster too.
func TestPause(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true, SimulatedStartDelay: 10 * time.Millisecond}})
	api := server.Client.AgentsV1alpha1()
	sandbox := builders.Sandbox("box")
	sandbox.Spec.PauseTime = new(metav1.NewTime(time.Now().Add(2 * time.Second)))
	if _, err := api.Sandboxes(ns).Create(t.Context(), sandbox, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSandbox(t, api, "box", inPhase(v1alpha1.SandboxPaused))
	if _, err := api.Sandboxes(ns).Patch(t.Context(), "box", "application/merge-patch+json",
		[]byte(`{"spec":{"paused":false,"pauseTime":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSandbox(t, api, "box", inPhase(v1alpha1.SandboxRunning))
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
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, sandbox := range list.Items {
			names[sandbox.Name] = true
		}
		set, err := api.SandboxSets(ns).Get(ctx, "bad", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := set.Status.AvailableReplicas; n != 0 {
			t.Fatalf("%d available", n)
		}
		if len(names) <= 6 {
			return fmt.Errorf("%d sandboxes were made, none in place of a replacement yet", len(names))
		}
		return nil
	})
}

// Two managers of two servers in one process.
func TestTwoManagers(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		server := testutil.Start(t)
		run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
		api := server.Client.AgentsV1alpha1()
		if _, err := api.SandboxSets(ns).Create(t.Context(), newSet(name, "a", 3), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitSet(t, api, name, available(3))
	}
}

// TestHealth: health is served before the caches are synced, single checks have paths of their own, and the port bounds headers.
func TestHealth(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, testutil.Start(t).Config, manager.Options{HealthProbeBindAddress: address, Options: controllers.Options{Simulate: true}})
	get := func(path string, fields int) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return 0, err
		}
		for i := range fields {
			req.Header.Set(fmt.Sprintf("X-%d", i), "y")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if got, err := get("/healthz", 0); err != nil || got != http.StatusOK {
		t.Errorf("/healthz: %d %v", got, err)
	}
	for _, path := range []string{"/readyz", "/readyz/caches", "/healthz/ping"} {
		expect.Eventually(t.Context(), t, func(context.Context) error {
			got, err := get(path, 0)
			if err == nil && got != http.StatusOK {
				err = fmt.Errorf("%s: %d", path, got)
			}
			return err
		})
	}
	if got, err := get("/healthz", 200); err != nil || got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("with 200 header fields: %d %v", got, err)
	}
	if got, err := get("/metrics", 0); err != nil || got != http.StatusNotFound {
		t.Errorf("/metrics on the port of health: %d %v", got, err)
	}
}
