// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAccess makes sure that only the user of the kubeconfig gets in, and only
// from this machine.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir())
	expect.FilledPool(t, s.Client.AgentsV1alpha1(), "default", 1)

	caFile, err := os.ReadFile(filepath.Join(s.Dir, "pki", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	caCerts, err := certutil.ParseCertsPEM(caFile)
	if err != nil {
		t.Fatal(err)
	}
	caKey, err := keyutil.ParsePrivateKeyPEM(caFile)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(caCerts[0])
	otherKey := newKey(t)
	other := issue(t, rootTemplate(), nil, otherKey, otherKey)
	masters := pkix.Name{CommonName: "sandlot-admin", Organization: []string{"system:masters"}}
	leaf := func(subject pkix.Name, ca *x509.Certificate, key any) []tls.Certificate {
		own := newKey(t)
		cert := issue(t, &x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, own, key)
		return []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: own}}
	}
	expired := func() []tls.Certificate {
		own := newKey(t)
		cert := issue(t, &x509.Certificate{
			Subject: masters, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, caCerts[0], own, caKey)
		return []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: own}}
	}

	paths := []string{
		"/", "/api", "/apis", "/version", "/metrics", "/openapi/v2", "/openapi/v3", "/debug/pprof/", "/configz", groupPath,
		namespacePath + "default/sandboxclaims", namespacePath + "default/sandboxes?watch=true", groupPath + "/sandboxsets",
	}
	for name, user := range map[string]struct {
		certs []tls.Certificate
		code  int
	}{
		"nobody":           {nil, http.StatusUnauthorized},
		"of another CA":    {leaf(masters, other, otherKey), http.StatusUnauthorized},
		"expired":          {expired(), http.StatusUnauthorized},
		"of another group": {leaf(pkix.Name{CommonName: "eve", Organization: []string{"tenants"}}, caCerts[0], caKey), http.StatusForbidden},
		"of no group":      {leaf(pkix.Name{CommonName: "sandlot-admin"}, caCerts[0], caKey), http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, &tls.Config{RootCAs: trusted, Certificates: user.certs})
			for _, path := range paths {
				if a := s.requestBy(t, client, http.MethodGet, path, "", ""); a.code != user.code {
					t.Errorf("GET %s: %d, want %d: %s", path, a.code, user.code, clip(a.body))
				}
			}
			claims := namespacePath + "default/sandboxclaims"
			a := s.requestBy(t, client, http.MethodPost, claims, asYAML, builders.ClaimYAML)
			if a.code != user.code {
				t.Errorf("creating a claim: %d, want %d: %s", a.code, user.code, clip(a.body))
			}
			// Probes have no certificate.
			if a := s.requestBy(t, client, http.MethodGet, "/readyz", "", ""); a.code != http.StatusOK && user.certs == nil {
				t.Errorf("GET /readyz: %d", a.code)
			}
		})
	}
	expect.FullPool(t, s.Client.AgentsV1alpha1(), "default", "pool", 1)
	if a := s.request(t, http.MethodGet, "/metrics", "", ""); a.code != http.StatusOK {
		t.Errorf("GET /metrics as the admin: %d", a.code)
	}

	t.Run("another server", func(t *testing.T) {
		foreign := x509.NewCertPool()
		foreign.AddCert(other)
		_, err := clientOf(t, &tls.Config{RootCAs: foreign}).Get(s.Config.Host + "/readyz")
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
			t.Errorf("a client that trusts another CA: %v", err)
		}
	})
	t.Run("files", func(t *testing.T) {
		for _, file := range []string{"kubeconfig", "pki/ca.pem", "pki/admin.pem", "pki/serving.pem"} {
			info, err := os.Stat(filepath.Join(s.Dir, file))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s can be read by others: %v %v", file, info, err)
			}
		}
	})
	t.Run("loopback only", func(t *testing.T) {
		_, port, err := net.SplitHostPort(s.Config.Host[len("https://"):])
		if err != nil {
			t.Fatal(err)
		}
		addresses, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range addresses {
			ip, ok := address.(*net.IPNet)
			if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
				continue
			}
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.IP.String(), port), 10*time.Second)
			if err == nil {
				conn.Close()
				t.Errorf("the API is served on %s", ip.IP)
			}
		}
	})
}

func clientOf(t testing.TB, config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: expect.Patience}
}

// rootTemplate is for a CA that is named like the server's own.
func rootTemplate() *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: "sandlot-ca"}, IsCA: true, BasicConstraintsValid: true}
}

func encodeCert(t testing.TB, cert *x509.Certificate) string {
	t.Helper()
	encoded, err := certutil.EncodeCertificates(cert)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate, which signs itself if there is no CA.
func issue(t testing.TB, template, ca *x509.Certificate, key *ecdsa.PrivateKey, caKey any) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	if ca == nil {
		ca = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
