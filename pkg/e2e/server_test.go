// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/generated/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// server is a running "sandlot up", and clients of it made from its kubeconfig.
type server struct {
	*process
	dir        string
	kubeconfig string
	config     *rest.Config
	// client has no limit of its own and does not retry.
	client versioned.Interface
	http   *http.Client
}

// startServer runs "sandlot up" on a data folder and a free port, and returns
// when it is ready. It is stopped, and has to stop well, when the test ends.
func startServer(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	s := launch(t, dir, args...)
	if err := s.awaitReady(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.alive() && !t.Failed() {
			s.stop(t)
		}
	})
	s.connect(t)
	return s
}

// launch runs "sandlot up" and returns at once.
func launch(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	args = append([]string{"up", "--data-dir", dir, "--secure-port", "0"}, args...)
	return &server{process: runProgram(t, "sandlot", args...), dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
}

func (s *server) awaitReady() error {
	select {
	case <-s.stdout.seen("ready"):
		return nil
	case <-s.exited:
		return fmt.Errorf("sandlot up ended before it was ready:\n%s", s.stderr.String())
	case <-time.After(expect.Patience):
		return errors.New("sandlot up is not ready")
	}
}

func (s *server) connect(t testing.TB) {
	t.Helper()
	var err error
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
		t.Fatalf("reading the kubeconfig: %v", err)
	}
	s.config.QPS = -1
	if s.http, err = rest.HTTPClientFor(s.config); err != nil {
		t.Fatalf("making an HTTP client: %v", err)
	}
	if s.client, err = versioned.NewForConfigAndClient(s.config, s.http); err != nil {
		t.Fatalf("making a client: %v", err)
	}
}

// awaitRunning waits until a sandbox runs.
func (s *server) awaitRunning(t testing.TB, namespace, name string) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sandbox, err := s.client.AgentsV1alpha1().Sandboxes(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if sandbox.Status.Phase != v1alpha1.SandboxRunning {
			return fmt.Errorf("sandbox %s is %q", name, sandbox.Status.Phase)
		}
		return nil
	})
}

// sandboxes returns the sandboxes of a namespace by name.
func (s *server) sandboxes(t testing.TB, namespace string) map[string]*v1alpha1.Sandbox {
	t.Helper()
	list, err := s.client.AgentsV1alpha1().Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("listing sandboxes: %v", err)
	}
	byName := make(map[string]*v1alpha1.Sandbox, len(list.Items))
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}
