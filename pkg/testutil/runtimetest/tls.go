// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/localpki"
)

// serverName is the name that all runtimes have in their certificates.
const serverName = "agentruntime.sandbox.agents.kruise.io"

// PKI is the certificates of runtimes that speak TLS, and of those who call them.
type PKI struct {
	// CAFile, ClientCertFile and ClientKeyFile are what a server is started with that
	// calls the runtimes.
	CAFile, ClientCertFile, ClientKeyFile string

	authority *localpki.Authority
}

// NewPKI returns new certificates of a new CA.
func NewPKI(t testing.TB) *PKI {
	t.Helper()
	dir := t.TempDir()
	authority, err := localpki.OpenAuthority(dir, "runtime-ca", "runtime-ca", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	p := &PKI{
		CAFile: filepath.Join(dir, "ca.pem"), ClientCertFile: filepath.Join(dir, "client.pem"), ClientKeyFile: filepath.Join(dir, "client-key.pem"),
		authority: authority,
	}
	client := p.issue(t, localpki.Leaf{CommonName: "sandlot", Client: true})
	for file, content := range map[string][]byte{p.CAFile: authority.CA(), p.ClientCertFile: client.Cert, p.ClientKeyFile: client.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *PKI) issue(t testing.TB, leaf localpki.Leaf) localpki.KeyPair {
	t.Helper()
	pair, err := p.authority.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Client is the TLS configuration of a caller.
func (p *PKI) Client(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.ClientCertFile, p.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: p.pool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

func (p *PKI) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.authority.CA())
	return pool
}

// ServerFiles are the certificate and the key of a runtime, for programs.
func (p *PKI) ServerFiles(t testing.TB) (cert, key string) {
	t.Helper()
	pair := p.issue(t, localpki.Leaf{CommonName: "runtime", Hosts: []string{serverName}})
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "server.pem"), filepath.Join(dir, "server-key.pem")
	for file, content := range map[string][]byte{cert: pair.Cert, key: pair.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// StartTLS returns a fleet of runtimes that speak TLS, at Port, and take clients with a
// certificate of the CA only.
func (p *PKI) StartTLS(t testing.TB) *Fleet {
	t.Helper()
	pair := p.issue(t, localpki.Leaf{CommonName: "runtime", Hosts: []string{serverName}})
	serving, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, &tls.Config{
		Certificates: []tls.Certificate{serving}, ClientCAs: p.pool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})
}
