// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Server is a running "sandlot up", and clients of it made from its kubeconfig.
type Server struct {
	*Process
	// Dir is its data folder, and Kubeconfig the file that it wrote there.
	Dir, Kubeconfig string
	// Config is what the kubeconfig says.
	Config *rest.Config
	// Client has no limit of its own and does not retry.
	Client versioned.Interface
	// HTTP is the client below Client.
	HTTP *http.Client
}

// Up runs "sandlot up" of the folder programs on a data folder and a free port, and returns
// when it is ready. It is stopped, and has to stop well, when the test ends.
func Up(t testing.TB, programs, dir string, args ...string) *Server {
	t.Helper()
	s := Launch(t, programs, dir, args...)
	if err := s.awaitReady(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Alive() && !t.Failed() {
			s.Stop(t)
		}
	})
	s.connect(t)
	return s
}

// Launch runs "sandlot up" and returns at once.
func Launch(t testing.TB, programs, dir string, args ...string) *Server {
	t.Helper()
	args = append([]string{"up", "--data-dir", dir, "--secure-port", "0"}, args...)
	return &Server{Process: Run(t, programs, "sandlot", args...), Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig")}
}

// Stop stops the server as Process.Stop does. It closes the idle connections of Client before,
// for which a server that stops waits a second.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.HTTP != nil {
		utilnet.CloseIdleConnectionsFor(s.HTTP.Transport)
	}
	s.Process.Stop(t)
}

func (s *Server) awaitReady() error {
	select {
	case <-s.Stdout.Seen("ready"):
		return nil
	case <-s.Exited:
		return fmt.Errorf("sandlot up ended before it was ready:\n%s", s.Stderr.String())
	case <-time.After(expect.Patience):
		return errors.New("sandlot up is not ready")
	}
}

func (s *Server) connect(t testing.TB) {
	t.Helper()
	var err error
	if s.Config, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		t.Fatalf("reading the kubeconfig: %v", err)
	}
	s.Config.QPS = -1
	if s.HTTP, err = rest.HTTPClientFor(s.Config); err != nil {
		t.Fatalf("making an HTTP client: %v", err)
	}
	if s.Client, err = versioned.NewForConfigAndClient(s.Config, s.HTTP); err != nil {
		t.Fatalf("making a client: %v", err)
	}
}
