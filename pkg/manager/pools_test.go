// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// A small set that comes late does not wait for large ones to fill, not even where
// there are as many of them as workers.
func TestSetsDoNotStarveEachOther(t *testing.T) {
	const sets = 4
	size := expect.Many(150, 500)
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api := server.Client.AgentsV1alpha1()
	none, err := api.Sandboxes(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The server ends a watch that is too slow for it; this one continues then.
	sandboxes, err := watchtools.NewRetryWatcherWithContext(t.Context(), none.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Sandboxes(ns).Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sandboxes.Stop()
	create := func(name string, replicas int32) {
		t.Helper()
		if _, err := api.SandboxSets(ns).Create(t.Context(), newSet(name, "a", replicas), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sets {
		create(fmt.Sprintf("large-%d", i), int32(size))
	}
	filling := map[string]bool{}
	made, before, smallAt := 0, 0, 0
	for made < sets*size+1 {
		var e watch.Event
		select {
		case e = <-sandboxes.ResultChan():
		case <-time.After(3 * time.Minute):
			t.Fatalf("%d sandboxes are made", made)
		}
		sandbox, ok := e.Object.(*v1alpha1.Sandbox)
		if !ok {
			t.Fatalf("the watch ended with %+v", e)
		}
		if e.Type != watch.Added {
			continue
		}
		made++
		set := sandbox.Labels[v1alpha1.LabelSandboxPool]
		if set == "small" {
			smallAt = made
		}
		if filling[set] = true; len(filling) == sets && before == 0 {
			before = made
			create("small", 1)
		}
	}
	t.Logf("of %d, the small set came when %d were made, and its sandbox was number %d", sets*size+1, before, smallAt)
	if left := sets*size - before; smallAt-before > left/2 {
		t.Errorf("%d sandboxes were made before that of the small set, of %d to come", smallAt-before, left)
	}
}

// A set of none with a burst is a pool on demand.
func TestBurst(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api, ctx := server.Client.AgentsV1alpha1(), t.Context()
	set := newSet("demand", "a", 0)
	set.Spec.ScaleStrategy.Burst = new(int32(6))
	if _, err := api.SandboxSets(ns).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := func(name string, n int32, change func(*v1alpha1.SandboxClaimSpec)) {
		t.Helper()
		claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SandboxClaimSpec{
			TemplateName: "demand", Replicas: &n, CreateOnNoStock: new(false), ClaimTimeout: &metav1.Duration{Duration: 3 * time.Minute},
		}}
		if change != nil {
			change(&claim.Spec)
		}
		if _, err := api.SandboxClaims(ns).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	served := func(name string, n int32) {
		t.Helper()
		if claim := server.AwaitClaim(t, ns, name, testutil.Completed); claim.Status.ClaimedReplicas != n {
			t.Fatalf("claim %s ended with %q", name, claim.Status.Message)
		}
	}
	claim("one", 1, nil)
	claim("all", 5, func(spec *v1alpha1.SandboxClaimSpec) { spec.Allocation = v1alpha1.AllocationAllOrNothing })
	served("one", 1)
	served("all", 5)
	claim("more", 15, nil) // than the burst at a time
	served("more", 15)

	// One gives up: what was made for it goes.
	claim("gives-up", 9, func(spec *v1alpha1.SandboxClaimSpec) {
		spec.Allocation = v1alpha1.AllocationAllOrNothing
		spec.ClaimTimeout = &metav1.Duration{Duration: 4 * time.Second}
	})
	awaitSet(t, api, "demand", func(s *v1alpha1.SandboxSetStatus) bool { return s.AvailableReplicas == 6 }) // the burst
	served("gives-up", 0)
	expect.Eventually(ctx, t, func(ctx context.Context) error {
		set, err := api.SandboxSets(ns).Get(ctx, "demand", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{LabelSelector: set.Status.Selector})
		if err == nil && (set.Status.Replicas != 0 || len(list.Items) != 0) {
			err = fmt.Errorf("the pool does not drain: %d sandboxes, %d by its status", len(list.Items), set.Status.Replicas)
		}
		return err
	})
	list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, sandbox := range list.Items {
		if strings.HasPrefix(sandbox.Name, "demand-") && sandbox.Labels[v1alpha1.LabelSandboxClaimed] == v1alpha1.ClaimedTrue {
			kept++
		}
	}
	if kept != 21 {
		t.Errorf("%d sandboxes are claimed", kept)
	}
}
