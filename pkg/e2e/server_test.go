// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// server is a running "sandlot up".
type server struct{ *program.Server }

// startServer runs "sandlot up" on a data folder, and returns when it is ready.
func startServer(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	return &server{program.Up(t, programs, dir, args...)}
}

// launch runs "sandlot up" and returns at once.
func launch(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	return &server{program.Launch(t, programs, dir, args...)}
}

// awaitRunning waits until a sandbox runs.
func (s *server) awaitRunning(t testing.TB, namespace, name string) {
	t.Helper()
	s.awaitPhase(t, namespace, name, v1alpha1.SandboxRunning)
}

// awaitPhase waits until a sandbox is in a phase.
func (s *server) awaitPhase(t testing.TB, namespace, name string, want v1alpha1.SandboxPhase) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sandbox, err := s.Client.AgentsV1alpha1().Sandboxes(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if sandbox.Status.Phase != want {
			return fmt.Errorf("sandbox %s is %q", name, sandbox.Status.Phase)
		}
		return nil
	})
}

// sandboxes returns the sandboxes of a namespace by name.
func (s *server) sandboxes(t testing.TB, namespace string) map[string]*v1alpha1.Sandbox {
	t.Helper()
	return sandboxesOf(t, s.Client, namespace)
}

func sandboxesOf(t testing.TB, client versioned.Interface, namespace string) map[string]*v1alpha1.Sandbox {
	t.Helper()
	list, err := client.AgentsV1alpha1().Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing sandboxes: %v", err)
	}
	byName := make(map[string]*v1alpha1.Sandbox, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}
