// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2btest"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const namespace = "default"

// stocked returns a server with a pool of n sandboxes.
func stocked(t *testing.T, n int) (*testutil.Server, *v1alpha1.SandboxSet) {
	t.Helper()
	server := testutil.Start(t)
	set := server.Set(t, namespace, "pool", int32(n))
	server.Stock(t, set, 0, n)
	return server, set
}

// run runs a table until the test ends, and waits until it has synced.
func run(t *testing.T, table *routes.Table) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		table.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if !table.HasSynced() {
			return errors.New("the table has not synced")
		}
		return nil
	})
}

func idOf(sandbox *v1alpha1.Sandbox) string {
	return v1alpha1.E2BSandboxID(sandbox.Namespace, sandbox.Labels[v1alpha1.LabelClaimName])
}

func find(t *testing.T, table *routes.Table, id string) routes.Route {
	t.Helper()
	route, err := table.Find(t.Context(), id)
	if err != nil {
		t.Fatalf("finding %s: %v", id, err)
	}
	return route
}

// awaitState waits until the table knows of a state.
func awaitState(t *testing.T, table *routes.Table, id string, want routes.State) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := find(t, table, id).State; got != want {
			return fmt.Errorf("the state of %s is %d, want %d", id, got, want)
		}
		return nil
	})
}

func awaitLen(t *testing.T, table *routes.Table, want int) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := table.Len(); got != want {
			return fmt.Errorf("%d sandboxes are known, want %d", got, want)
		}
		return nil
	})
}

func TestTheTableFollowsSandboxes(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 3)
	before := e2btest.Claim(t, server, set, e2btest.Annotate(
		v1alpha1.AnnotationE2BTimeout, "300", v1alpha1.AnnotationE2BAutoPause, "true",
		v1alpha1.AnnotationE2BAutoResume, "true", v1alpha1.AnnotationE2BPrivate, "true"))
	// One that was not claimed through the E2B API.
	other := testutil.Claim(set, e2btest.Code(), 1, nil)
	if _, err := server.CreateOnce(t.Context(), namespace, other); err != nil {
		t.Fatal(err)
	}
	table := routes.New(server.Client, routes.Options{})
	run(t, table)
	awaitLen(t, table, 1)

	want := routes.Route{
		ID: idOf(before), Namespace: namespace, Name: before.Name, Claim: before.Labels[v1alpha1.LabelClaimName], UID: before.UID,
		State: routes.Running, AutoResume: true, Private: true,
	}
	if diff := cmp.Diff(want, find(t, table, want.ID)); diff != "" {
		t.Errorf("the route is not what was asked for (-want +got):\n%s", diff)
	}
	if _, err := table.Find(t.Context(), v1alpha1.E2BSandboxID(namespace, other.Name)); !errors.Is(err, routes.ErrNotFound) {
		t.Errorf("a sandbox of another API was found: %v", err)
	}

	after := e2btest.Claim(t, server, set, nil)
	awaitLen(t, table, 2)
	if got := find(t, table, idOf(after)); got.State != routes.Running || got.Private || got.AutoResume {
		t.Errorf("got %+v", got)
	}
	e2btest.Pause(t, server, after)
	awaitState(t, table, idOf(after), routes.Paused)
	e2btest.Resume(t, server, after, "127.0.0.9")
	awaitState(t, table, idOf(after), routes.Running)
	e2btest.Change(t, server, after, func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: time.Now().Add(-time.Hour)} })
	awaitState(t, table, idOf(after), routes.Other)

	if err := server.Client.AgentsV1alpha1().Sandboxes(namespace).Delete(t.Context(), after.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitLen(t, table, 1)
	if _, err := table.Find(t.Context(), idOf(after)); !errors.Is(err, routes.ErrNotFound) {
		t.Errorf("a deleted sandbox was found: %v", err)
	}
}
