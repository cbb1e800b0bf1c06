// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

func TestIssue(t *testing.T) {
	t.Parallel()
	ca := caOf(t, start, 30*day)
	want := target{secret: "s", names: []string{"a.example", "b.example"}, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}

	leaf, err := issue(ca, want, start, 90*day)
	if err != nil {
		t.Fatal(err)
	}
	if !leaf.cert.NotAfter.Equal(ca.cert.NotAfter) {
		t.Errorf("valid until %s, and its CA until %s", leaf.cert.NotAfter, ca.cert.NotAfter)
	}
	if got, want := refreshAt(leaf.cert), start.Add(20*day); !got.Equal(want) {
		t.Errorf("to be replaced at %s, want %s", got, want)
	}
	if leaf.cert.IsCA || parseCA(leaf.certPEM, leaf.keyPEM) != nil {
		t.Error("it could sign")
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		for _, name := range []string{"a.example", "b.example", "c.example"} {
			_, err := leaf.cert.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: name, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{usage},
			})
			if want := usage == x509.ExtKeyUsageClientAuth && name != "c.example"; (err == nil) != want {
				t.Errorf("name %s, usage %d: accepted %t, want %t", name, usage, err == nil, want)
			}
		}
	}
	again, err := issue(ca, want, start, 90*day)
	if err != nil || bytes.Equal(again.keyPEM, leaf.keyPEM) {
		t.Errorf("the same key again, %v", err)
	}
}

func TestDamagedPairsAreNone(t *testing.T) {
	t.Parallel()
	ca, other := caOf(t, start, 30*day), caOf(t, start, 30*day)
	certEC, keyEC := ecCA(t)
	for name, tc := range map[string]struct{ cert, key []byte }{
		"nothing":          {nil, nil},
		"no key":           {ca.certPEM, nil},
		"no certificate":   {nil, ca.keyPEM},
		"garbage":          {[]byte("garbage"), []byte("garbage")},
		"cut short":        {ca.certPEM[:len(ca.certPEM)/2], ca.keyPEM},
		"the key of other": {ca.certPEM, other.keyPEM},
		"no RSA key":       {certEC, keyEC},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if parseCA(tc.cert, tc.key) != nil {
				t.Error("taken for a CA")
			}
		})
	}
	if parseCA(ca.certPEM, ca.keyPEM) == nil {
		t.Error("a CA is not taken for one")
	}
}

func ecCA(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ec"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: start, NotAfter: start.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM
}

func TestParseBundle(t *testing.T) {
	t.Parallel()
	a, b := caOf(t, start, 30*day), caOf(t, start, 30*day)
	leaf, err := issue(a, target{secret: "s", names: []string{"a.example"}, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, start, day)
	if err != nil {
		t.Fatal(err)
	}
	broken := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	spoilt := bytes.Join([][]byte{[]byte("text\n"), a.certPEM, broken, leaf.certPEM, a.keyPEM, b.certPEM}, nil)

	got := parseBundle(spoilt)
	if len(got) != 2 || !got[0].Equal(a.cert) || !got[1].Equal(b.cert) {
		t.Fatalf("%d CAs, want the two that are in it", len(got))
	}
	encoded, err := encodeBundle(got)
	if err != nil || !bytes.Equal(encoded, append(bytes.Clone(a.certPEM), b.certPEM...)) {
		t.Errorf("encoded again:\n%s\n%v", encoded, err)
	}
}
