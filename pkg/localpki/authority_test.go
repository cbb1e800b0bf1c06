// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package localpki

import (
	"bytes"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestAuthority(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	open := func(name string, now time.Time) *Authority {
		t.Helper()
		a, err := OpenAuthority(dir, name, name, clocktesting.NewFakePassiveClock(now))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ensured := func(a *Authority, name string, want Leaf) KeyPair {
		t.Helper()
		pair, err := a.Ensure(name, want)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	first, other := open("first", now), open("other", now)
	if bytes.Equal(first.CA(), other.CA()) {
		t.Fatal("two authorities have one CA")
	}
	if again := open("first", now); !bytes.Equal(again.CA(), first.CA()) {
		t.Error("the CA is not kept")
	}

	want := Leaf{CommonName: "both", Organization: []string{"team"}, Hosts: []string{"a.example", "127.0.0.1"}, Client: true}
	made := ensured(first, "leaf", want)
	cert := leaf(t, made)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(first.CA())
		for _, host := range want.Hosts {
			_, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
			if err != nil {
				t.Errorf("usage %v, host %s: %v", usage, host, err)
			}
		}
	}
	if cert.Subject.CommonName != "both" || !slices.Equal(cert.Subject.Organization, []string{"team"}) {
		t.Errorf("it is for %s", cert.Subject)
	}
	if kept := ensured(first, "leaf", want); !bytes.Equal(kept.Cert, made.Cert) || !bytes.Equal(kept.Key, made.Key) {
		t.Error("the certificate is not kept")
	}
	if ours := ensured(other, "leaf", want); bytes.Equal(ours.Cert, made.Cert) {
		t.Error("an authority takes what another one has signed")
	}

	one, err := first.Issue(Leaf{CommonName: "alice", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	two, err := first.Issue(Leaf{CommonName: "alice", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one.Cert, two.Cert) {
		t.Error("a certificate was issued twice")
	}
	if usages := leaf(t, one).ExtKeyUsage; !slices.Equal(usages, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("a client has the usages %v", usages)
	}
}
