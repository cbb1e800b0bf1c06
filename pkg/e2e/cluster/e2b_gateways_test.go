// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// e2bGateways starts replicas of the gateway as the install does: with the flags of its
// Deployment, and a token of its ServiceAccount.
type e2bGateways struct {
	bin, kubeconfig string
	args            []string // of the Deployment
	address         netip.Addr
	authority       *localpki.Authority
	caFile          string
	client          *http.Client
}

// e2bGateway is one of them.
type e2bGateway struct {
	*program.Process
	url, metricsURL string
	ca              []byte
}

// metrics returns a copy of a user's config that goes to where it serves its metrics.
func (g *e2bGateway) metrics(user *rest.Config) (*rest.Config, error) {
	config := rest.CopyConfig(user)
	config.Host, config.CAFile, config.CAData = g.metricsURL, "", g.ca
	return config, nil
}

// newE2BGateways prepares replicas with addresses of a network that no one else has.
func newE2BGateways(t *testing.T, bin, cidr string) *e2bGateways {
	t.Helper()
	folder := kustomized(t, "components: [%s/components/e2b]\n")
	out, _, err := plane.Kubectl(t.Context(), "", nil, "apply", "--kustomize", folder, "--dry-run=client", "--output=json")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(findObject(t, out, "Deployment").Object, &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	g := &e2bGateways{bin: bin, args: pod.Containers[0].Args, address: netip.MustParsePrefix(cidr).Addr()}
	if g.kubeconfig, err = plane.ServiceAccountKubeconfig(t.Context(), controlplane.Namespace, pod.ServiceAccountName); err != nil {
		t.Fatal(err)
	}
	if g.authority, err = localpki.OpenAuthority(t.TempDir(), "ca", "test", clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
	g.caFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(g.caFile, g.authority.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.authority.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	g.client = &http.Client{Transport: transport}
	return g
}

// start starts a replica and waits until it is ready, as a kubelet asks it.
func (g *e2bGateways) start(t *testing.T) *e2bGateway {
	t.Helper()
	g.address = g.address.Next()
	pair, err := g.authority.Issue(localpki.Leaf{CommonName: "sandlot-gateway", Hosts: []string{g.address.String()}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(cert, pair.Cert, 0o600), os.WriteFile(key, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	// The last one of several flags of a name is what counts.
	process := program.Run(t, g.bin, "sandlot-gateway", slices.Concat(g.args, []string{
		"--kubeconfig=" + g.kubeconfig, "--bind-address=" + g.address.String(), "--metrics-bind-address=" + g.address.String() + ":8080",
		"--health-probe-bind-address=" + g.address.String() + ":8081",
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--allow-loopback",
	})...)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		if !process.Alive() {
			t.Fatal("the gateway has ended")
		}
		return g.get(ctx, "http://"+g.address.String()+":8081/readyz", "")
	})
	host := "https://" + g.address.String()
	return &e2bGateway{process, host + ":8443", host + ":8080", g.authority.CA()}
}

// awaitRights waits until replicas may act for the team of a key: a role takes a moment to
// be known.
func (g *e2bGateways) awaitRights(t *testing.T, key string, replicas ...*e2bGateway) {
	t.Helper()
	for _, replica := range replicas {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { return g.get(ctx, replica.url+"/v2/sandboxes", key) })
	}
}

// get requires that a page is there.
func (g *e2bGateways) get(ctx context.Context, url, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", key)
	resp, err := g.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, resp.StatusCode, text)
	}
	return err
}
