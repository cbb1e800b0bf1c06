// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/generated/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// replicas are API servers in processes of their own, on one etcd of the test's, which
// no kill ends. No controllers run: what they do, the test does.
type replicas struct {
	etcd []string
	pki  *localpki.PKI
	args []string
}

// replica is one of them.
type replica struct {
	process *program.Process
	*testutil.Server
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	dir := t.TempDir()
	pki, err := localpki.Ensure(dir, []string{"127.0.0.1"}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return &replicas{etcd: testutil.StartEtcd(t), pki: pki, args: []string{
		"--client-ca-file", writeFile(t, string(pki.CA), dir, "files", "ca.pem"),
		"--tls-cert-file", writeFile(t, string(pki.Serving.Cert), dir, "files", "serving.pem"),
		"--tls-private-key-file", writeFile(t, string(pki.Serving.Key), dir, "files", "serving-key.pem"),
		"--bind-address", "127.0.0.1",
	}}
}

// start starts one that reaches etcd at a URL, and returns when it is ready.
func (r *replicas) start(t *testing.T, etcd string, args ...string) *replica {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	_ = listener.Close()
	args = append(append([]string{"--etcd-servers", etcd, "--secure-port", fmt.Sprint(address.Port)}, r.args...), args...)
	process := program.Run(t, programs, "sandlot-apiserver", args...)
	config := &rest.Config{
		Host:            "https://" + address.String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: r.pki.CA, CertData: r.pki.Admin.Cert, KeyData: r.pki.Admin.Key},
		QPS:             -1,
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if !process.Alive() {
			t.Fatalf("%s ended before it was ready:\n%s", process.Name, process.Stderr.String())
		}
		answer := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx)
		var code int
		if answer.StatusCode(&code); code != http.StatusOK {
			return fmt.Errorf("not ready: %d, %w", code, answer.Error())
		}
		return nil
	})
	return &replica{process: process, Server: &testutil.Server{Config: config, Client: client, EtcdServers: r.etcd}}
}
