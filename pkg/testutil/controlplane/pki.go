// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/localpki"
)

// pki is the certificates and keys of the control plane, as files.
type pki struct {
	dir string
	// cluster signs servers and users, proxy only the client certificate that the
	// aggregator shows to API servers behind it.
	cluster, proxy *localpki.Authority
}

const (
	clusterCAFile       = "cluster-ca.crt"
	proxyCAFile         = "front-proxy-ca.crt"
	serviceAccountsFile = "service-accounts.key"
	servingName         = "serving"
	proxyClientName     = "front-proxy-client"
	kubeletClientName   = "kubelet-client"
)

// ServiceAddress is the address of the Service of kube-apiserver. What makes it lead there is up to
// the nodes.
const ServiceAddress = "10.0.0.1"

// servingHosts are the names by which the servers of the control plane are asked.
var servingHosts = []string{
	loopback, "localhost", ServiceAddress,
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// openPKI returns what is kept in a folder, and makes what is missing.
func openPKI(dir string) (*pki, error) {
	kept := filepath.Join(dir, "kept")
	cluster, err := localpki.OpenAuthority(kept, "cluster-ca", "cluster-ca", clock.RealClock{})
	if err != nil {
		return nil, err
	}
	proxy, err := localpki.OpenAuthority(kept, "front-proxy-ca", "front-proxy-ca", clock.RealClock{})
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, cluster: cluster, proxy: proxy}
	serving, err := cluster.Ensure(servingName, localpki.Leaf{CommonName: "control-plane", Hosts: servingHosts})
	if err != nil {
		return nil, err
	}
	proxyClient, err := proxy.Ensure(proxyClientName, localpki.Leaf{CommonName: "front-proxy", Client: true})
	if err != nil {
		return nil, err
	}
	kubeletClient, err := cluster.Ensure(kubeletClientName, localpki.Leaf{
		CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}, Client: true,
	})
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		clusterCAFile:              cluster.CA(),
		proxyCAFile:                proxy.CA(),
		servingName + ".crt":       serving.Cert,
		servingName + ".key":       serving.Key,
		proxyClientName + ".crt":   proxyClient.Cert,
		proxyClientName + ".key":   proxyClient.Key,
		kubeletClientName + ".crt": kubeletClient.Cert,
		kubeletClientName + ".key": kubeletClient.Key,
	} {
		if err := os.WriteFile(p.file(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return p, ensureKey(p.file(serviceAccountsFile))
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// ensureKey makes a key unless there is one: tokens must outlive a restart.
func ensureKey(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	content, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("key of service accounts: %w", err)
	}
	return os.WriteFile(path, content, 0o600)
}
