// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package localpki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosts = []string{"localhost", "127.0.0.1", "::1"}
)

func TestEnsure(t *testing.T) {
	const year = 365 * 24 * time.Hour
	cases := map[string]struct {
		after                    time.Duration
		hosts                    []string
		change                   func(t *testing.T, dir string)
		newCA, newServe, newUser bool
	}{
		"nothing has changed":     {after: year, hosts: hosts},
		"fewer hosts":             {hosts: hosts[:1]},
		"another host":            {hosts: append([]string{"192.0.2.1"}, hosts...), newServe: true},
		"leaves near their end":   {after: 2*year + time.Hour, hosts: hosts, newServe: true, newUser: true},
		"the CA near its end":     {after: 9*year + time.Hour, hosts: hosts, newCA: true, newServe: true, newUser: true},
		"the clock was set back":  {after: -year, hosts: hosts, newCA: true, newServe: true, newUser: true},
		"a certificate is gone":   {hosts: hosts, newServe: true, change: func(t *testing.T, dir string) { remove(t, dir, "serving.pem") }},
		"a certificate is broken": {hosts: hosts, newUser: true, change: func(t *testing.T, dir string) { truncate(t, dir, "admin.pem") }},
		"the CA is broken": {hosts: hosts, newCA: true, newServe: true, newUser: true,
			change: func(t *testing.T, dir string) { truncate(t, dir, "ca.pem") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			before := ensure(t, dir, hosts, testclock.NewFakePassiveClock(start))
			if tc.change != nil {
				tc.change(t, dir)
			}
			now := start.Add(tc.after)
			after := ensure(t, dir, tc.hosts, testclock.NewFakePassiveClock(now))

			for _, part := range []struct {
				name          string
				before, after []byte
				want          bool
			}{
				{"CA", before.CA, after.CA, tc.newCA},
				{"serving certificate", before.Serving.Cert, after.Serving.Cert, tc.newServe},
				{"serving key", before.Serving.Key, after.Serving.Key, tc.newServe},
				{"admin certificate", before.Admin.Cert, after.Admin.Cert, tc.newUser},
			} {
				if got := !bytes.Equal(part.before, part.after); got != part.want {
					t.Errorf("%s is new: %v, want %v", part.name, got, part.want)
				}
			}
			verify(t, after, tc.hosts, now)
		})
	}
}

func TestFilesAreSecret(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	ensure(t, dir, hosts, clock.RealClock{})
	if mode := stat(t, dir); mode != 0o700 {
		t.Errorf("folder has mode %o", mode)
	}
	for _, name := range []string{"ca.pem", "serving.pem", "admin.pem"} {
		if mode := stat(t, filepath.Join(dir, name)); mode != 0o600 {
			t.Errorf("%s has mode %o", name, mode)
		}
	}
}

func TestWriteKubeconfig(t *testing.T) {
	pki := ensure(t, t.TempDir(), hosts, clock.RealClock{})
	path := filepath.Join(t.TempDir(), "new", "kubeconfig")
	if err := pki.WriteKubeconfig(path, "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if mode := stat(t, path); mode != 0o600 {
		t.Errorf("mode %o", mode)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1" || !bytes.Equal(config.CAData, pki.CA) || !bytes.Equal(config.CertData, pki.Admin.Cert) {
		t.Errorf("unexpected config: %s", config)
	}
}

func TestWriteKubeconfigKeepsOthers(t *testing.T) {
	pki := ensure(t, t.TempDir(), hosts, clock.RealClock{})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	mine := clientcmdapi.NewConfig()
	mine.Contexts["prod"] = &clientcmdapi.Context{Cluster: "prod", AuthInfo: "me"}
	mine.CurrentContext = "prod"
	if err := clientcmd.WriteToFile(*mine, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := pki.WriteKubeconfig(path, "https://127.0.0.1:1"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Contexts["prod"] == nil || got.Contexts["sandlot"] == nil || got.CurrentContext != "sandlot" || len(got.Contexts) != 2 {
		t.Errorf("contexts %v, current %q", got.Contexts, got.CurrentContext)
	}
	if mode := stat(t, path); mode != 0o600 {
		t.Errorf("mode %o", mode)
	}
}

func TestWriteKubeconfigRefusesWhatItCannotRead(t *testing.T) {
	pki := ensure(t, t.TempDir(), hosts, clock.RealClock{})
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte("not: [a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckKubeconfig(path); err == nil {
		t.Error("no kubeconfig, and the check does not say so")
	}
	if err := CheckKubeconfig(filepath.Join(t.TempDir(), "missing")); err != nil {
		t.Errorf("a new kubeconfig: %v", err)
	}
	if err := pki.WriteKubeconfig(path, "https://127.0.0.1:1"); err == nil {
		t.Error("a file that is no kubeconfig was overwritten")
	}
}

func TestSelfSigned(t *testing.T) {
	made, err := SelfSigned("a.example", testclock.NewFakePassiveClock(start))
	if err != nil {
		t.Fatal(err)
	}
	cert, roots := leaf(t, made), x509.NewCertPool()
	roots.AddCert(cert)
	if _, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok {
		t.Errorf("the key is a %T", cert.PublicKey)
	}
	for host, want := range map[string]bool{"a.example": true, "b.example": false} {
		opts := x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: start.Add(9 * 365 * 24 * time.Hour)}
		if _, err := cert.Verify(opts); (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func ensure(t *testing.T, dir string, hosts []string, clock clock.PassiveClock) *PKI {
	t.Helper()
	pki, err := Ensure(dir, hosts, clock)
	if err != nil {
		t.Fatal(err)
	}
	return pki
}

// verify checks the certificates as the two sides of a connection do.
func verify(t *testing.T, pki *PKI, hosts []string, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pki.CA) {
		t.Fatal("the CA is no certificate")
	}
	for _, host := range hosts {
		opts := x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := leaf(t, pki.Serving).Verify(opts); err != nil {
			t.Errorf("serving certificate for %s: %v", host, err)
		}
	}
	admin := leaf(t, pki.Admin)
	opts := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := admin.Verify(opts); err != nil {
		t.Errorf("admin certificate: %v", err)
	}
	if got := admin.Subject.Organization; len(got) != 1 || got[0] != "system:masters" {
		t.Errorf("groups of the admin: %v", got)
	}
}

func leaf(t *testing.T, p KeyPair) *x509.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

func stat(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, name), 400); err != nil {
		t.Fatal(err)
	}
}
