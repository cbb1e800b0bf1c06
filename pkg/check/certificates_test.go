// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// certificate is one of a test, with its key.
type certificate struct {
	pem    []byte
	parsed *x509.Certificate
	key    crypto.Signer
}

// authority makes a CA that is valid until a time from now.
func authority(t *testing.T, until time.Duration) certificate {
	return issue(t, nil, now.Add(-1000*time.Hour), now.Add(until))
}

// issue makes a certificate of a CA, or a CA if that is nil.
func issue(t *testing.T, by *certificate, from, until time.Time) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: until,
		BasicConstraintsValid: true, IsCA: by == nil, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, crypto.Signer(key)
	if by != nil {
		parent, signer = by.parsed, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), parsed, key}
}

func TestJudgeCertificates(t *testing.T) {
	ca, other := authority(t, 1000*time.Hour), authority(t, 1000*time.Hour)
	secret := func(name string, chain, cas []byte) corev1.Secret {
		return corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "sandlot-" + name},
			Data:       map[string][]byte{corev1.TLSCertKey: chain, corev1.ServiceAccountRootCAKey: cas},
		}
	}
	valid := issue(t, &ca, now.Add(-50*time.Hour), now.Add(50*time.Hour))
	foreign := secret("foreign", []byte("x"), nil)
	foreign.Name = "other"
	found, n := judgeCertificates([]corev1.Secret{
		secret("valid", valid.pem, ca.pem),
		secret("signer", ca.pem, nil),
		secret("both", valid.pem, append(append([]byte{}, other.pem...), ca.pem...)),
		secret("stranger", valid.pem, other.pem),
		secret("late", issue(t, &ca, now.Add(-76*time.Hour), now.Add(24*time.Hour)).pem, ca.pem),
		secret("expired", issue(t, &ca, now.Add(-76*time.Hour), now.Add(-time.Hour)).pem, ca.pem),
		secret("broken", []byte("x"), nil),
		secret("empty", nil, nil),
		foreign,
	}, now)
	expectFound(t, "certificates", found,
		"Error: the certificate in Secret agents/sandlot-stranger is not of the CAs beside it",
		"Warning: the certificate in Secret agents/sandlot-late ends at 2026-01-03T03:04:05Z",
		"Error: the certificate in Secret agents/sandlot-expired expired at 2026-01-02T02:04:05Z",
		"Error: the certificate in Secret agents/sandlot-broken cannot be read")
	if n != 7 {
		t.Errorf("%d certificates were looked at, want 7", n)
	}
}
