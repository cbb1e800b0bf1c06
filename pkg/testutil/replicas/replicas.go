// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas is for tests only: it runs API servers in processes of their own, on
// one etcd of the test's, so that the test can kill them. No controllers run: what they
// do, the test does.
package replicas

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// Replicas are API servers on one etcd, which no kill ends.
type Replicas struct {
	// Etcd are the endpoints of that.
	Etcd []string

	programs string
	pki      *localpki.PKI
	args     []string
}

// Replica is one of them.
type Replica struct {
	// Process is sandlot-apiserver.
	Process *program.Process
	*testutil.Server

	programs string
	args     []string
}

// New makes what replicas share. programs is the folder of sandlot-apiserver, and args
// are more arguments of all of them.
func New(t testing.TB, programs string, args ...string) *Replicas {
	t.Helper()
	return NewOn(t, testutil.StartEtcd(t), programs, args...)
}

// NewOn is New on an etcd of the caller's, at these endpoints.
func NewOn(t testing.TB, etcd []string, programs string, args ...string) *Replicas {
	t.Helper()
	dir := t.TempDir()
	pki, err := localpki.Ensure(dir, []string{"127.0.0.1"}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return &Replicas{Etcd: etcd, programs: programs, pki: pki, args: append([]string{
		"--client-ca-file", file("clients.crt", pki.CA),
		"--tls-cert-file", file("tls.crt", pki.Serving.Cert),
		"--tls-private-key-file", file("tls.key", pki.Serving.Key),
		"--bind-address", "127.0.0.1",
	}, args...)}
}

// Start starts one that reaches etcd at a URL, and returns when it is ready. It ends with
// the test.
func (r *Replicas) Start(t testing.TB, etcd string, args ...string) *Replica {
	t.Helper()
	return r.StartOf(t, r.programs, etcd, args...)
}

// StartOf is Start of the sandlot-apiserver in a folder of the caller's, such as that of
// another version.
func (r *Replicas) StartOf(t testing.TB, programs, etcd string, args ...string) *Replica {
	t.Helper()
	replica := r.prepare(t, programs, etcd, args...)
	replica.Launch(t)
	replica.awaitReady(t)
	return replica
}

// Prepare returns a replica that reaches etcd at a URL, and that Launch starts.
func (r *Replicas) Prepare(t testing.TB, etcd string, args ...string) *Replica {
	t.Helper()
	return r.prepare(t, r.programs, etcd, args...)
}

func (r *Replicas) prepare(t testing.TB, programs, etcd string, args ...string) *Replica {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	config := &rest.Config{
		Host:            "https://" + address,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.pki.CA, CertData: r.pki.Admin.Cert, KeyData: r.pki.Admin.Key},
		QPS:             -1,
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &Replica{
		Server:   &testutil.Server{Config: config, Client: client, EtcdServers: r.Etcd},
		programs: programs,
		args:     append(append([]string{"--etcd-servers", etcd, "--secure-port", port}, r.args...), args...),
	}
}

// Launch starts the process, again if it has ended, at the same address as before, and returns at once.
func (r *Replica) Launch(t testing.TB) {
	t.Helper()
	r.Process = program.Run(t, r.programs, "sandlot-apiserver", r.args...)
}

func (r *Replica) awaitReady(t testing.TB) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if !r.Process.Alive() {
			t.Fatalf("%s ended before it was ready:\n%s", r.Process.Name, r.Process.Stderr.String())
		}
		return r.Ready(ctx)
	})
}

// Ready returns nil if the replica is ready.
func (r *Replica) Ready(ctx context.Context) error {
	answer := r.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx)
	var code int
	if answer.StatusCode(&code); code != http.StatusOK {
		return fmt.Errorf("not ready: %s, %w", strconv.Itoa(code), answer.Error())
	}
	return nil
}

// Kubeconfig returns a file by which a program reaches a replica as the admin.
func (r *Replicas) Kubeconfig(t testing.TB, replica *Replica) string {
	t.Helper()
	return r.KubeconfigOf(t, replica.Config.Host)
}

// KubeconfigOf is Kubeconfig of an address on 127.0.0.1 that leads to a replica.
func (r *Replicas) KubeconfigOf(t testing.TB, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := r.pki.WriteKubeconfig(path, url); err != nil {
		t.Fatal(err)
	}
	return path
}
