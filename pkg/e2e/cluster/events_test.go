// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// eventsOf returns the events on an object.
func (c *clients) eventsOf(ctx context.Context, ns string, uid types.UID) ([]eventsv1.Event, error) {
	list, err := c.kube.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != uid }), nil
}

// awaitEventOn waits for an event on an object.
func (c *clients) awaitEventOn(t testing.TB, ns string, uid types.UID, kind, reason, note string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		events, err := c.eventsOf(ctx, ns, uid)
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range events {
			if e.Type == kind && e.Reason == reason && strings.Contains(e.Note, note) {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Note))
		}
		return fmt.Errorf("no event %s %s with %q among %q", kind, reason, note, seen)
	})
}

// TestEventsOnSets follows a set through its life. What happens to many of its
// sandboxes at once, or again and again, is one event.
func TestEventsOnSets(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 6)
	set, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitEventOn(t, ns, set.UID, corev1.EventTypeNormal, "SandboxCreated", "Created ")

	// Refills, one after another, are counted up in the event that is there.
	for i := range 3 {
		c.claim(t, ns, builders.Claim(fmt.Sprintf("claim-%d", i), 1))
		expect.FullPool(t, c, ns, "pool", 6)
	}
	kubectl(t, ns, "", "scale", "sandboxset", "pool", "--replicas=4")
	c.awaitEventOn(t, ns, set.UID, corev1.EventTypeNormal, "SandboxScaledDown", "Deleted 2 sandboxes")
	// The series is written beside other events, in no order.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		events, err := c.eventsOf(ctx, ns, set.UID)
		if err != nil {
			return err
		}
		created := slices.DeleteFunc(events, func(e eventsv1.Event) bool { return e.Reason != "SandboxCreated" })
		if len(created) != 1 || created[0].Series == nil {
			return fmt.Errorf("refills are not told in one event that is a series: %v", created)
		}
		return nil
	})

	c.validatingPolicy(t, ns, []string{"sandboxes"}, admissionregistrationv1.Validation{Expression: "false", Message: "no more sandboxes"})
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}
		sandbox.Spec.Template = set.Spec.Template
		for i := range sandlot.APIServers() {
			dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			if _, err := c.direct(t, i).Sandboxes(ns).Create(ctx, sandbox, dry); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				return fmt.Errorf("server %d does not know the policy: %w", i, err)
			}
		}
		return nil
	})
	kubectl(t, ns, "", "scale", "sandboxset", "pool", "--replicas=7")
	c.awaitEventOn(t, ns, set.UID, corev1.EventTypeWarning, "CreateSandboxFailed", "no more sandboxes")
	if described := kubectl(t, ns, "", "describe", "sandboxset", "pool"); !strings.Contains(described, "CreateSandboxFailed") {
		t.Errorf("kubectl describe shows no events:\n%s", described)
	}
}

// TestEventsOnClaims: a claim that waits says so, one that was bound by its create
// leaves no trace in the cluster's own etcd.
func TestEventsOnClaims(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	warm := c.claim(t, ns, builders.Claim("warm", 1))

	late := builders.Set("late", 1)
	waits := builders.Claim("waits", 1)
	waits.Spec.TemplateName = late.Name
	waiting, err := c.SandboxClaims(ns).Create(t.Context(), waits, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitEventOn(t, ns, waiting.UID, corev1.EventTypeWarning, "NoAvailableSandboxes", v1alpha1.SandboxSetNotFoundMessage(ns, late.Name))
	if _, err := c.SandboxSets(ns).Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitEventOn(t, ns, waiting.UID, corev1.EventTypeNormal, "ClaimCompleted", "Successfully claimed 1/1 sandboxes")

	// By now the controller has reported a claim that came later.
	events, err := c.eventsOf(t.Context(), ns, warm.UID)
	if err != nil || len(events) > 0 {
		t.Errorf("the warm claim has the events %v, %v", events, err)
	}
}
