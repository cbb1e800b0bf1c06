// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// skew is how far the clock of someone who verifies a certificate may be behind
// ours.
const skew = time.Hour

// errSignerKey means that the key of a CA is not of the kind that we make.
var errSignerKey = errors.New("the key of the CA is not an RSA key")

// keyPair is a certificate and its key, in PEM.
type keyPair struct {
	cert    *x509.Certificate
	certPEM []byte
	keyPEM  []byte
}

// parseKeyPair returns nil for what is missing, damaged or not a pair.
func parseKeyPair(certPEM, keyPEM []byte) *keyPair {
	both, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil
	}
	return &keyPair{cert: both.Leaf, certPEM: certPEM, keyPEM: keyPEM}
}

// parseCA returns nil for what is no CA that we could sign with.
func parseCA(certPEM, keyPEM []byte) *keyPair {
	pair := parseKeyPair(certPEM, keyPEM)
	if pair == nil || !pair.cert.IsCA {
		return nil
	}
	if _, err := pair.artifacts(); err != nil {
		return nil
	}
	return pair
}

// newCA makes a CA. Its name has the time in it, so that no two have the same.
func newCA(name string, now time.Time, validity time.Duration) (*keyPair, error) {
	maker := rotator.CertRotator{CAName: fmt.Sprintf("%s-%d", name, now.Unix()), CAOrganization: "sandlot"}
	made, err := maker.CreateCACert(now.Add(-skew), now.Add(validity))
	if err != nil {
		return nil, fmt.Errorf("making CA %s: %w", name, err)
	}
	return &keyPair{cert: made.Cert, certPEM: made.CertPEM, keyPEM: made.KeyPEM}, nil
}

// issue makes a certificate that ca signs. It does not outlive its CA.
func issue(ca *keyPair, t target, now time.Time, validity time.Duration) (*keyPair, error) {
	signer, err := ca.artifacts()
	if err != nil {
		return nil, err
	}
	end := now.Add(validity)
	if end.After(ca.cert.NotAfter) {
		end = ca.cert.NotAfter
	}
	maker := rotator.CertRotator{DNSName: t.names[0], ExtraDNSNames: t.names[1:], ExtKeyUsages: &t.usages}
	certPEM, keyPEM, err := maker.CreateCertPEM(signer, now.Add(-skew), end)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of Secret %s: %w", t.secret, err)
	}
	pair := parseKeyPair(certPEM, keyPEM)
	if pair == nil {
		return nil, fmt.Errorf("making the certificate of Secret %s: the result cannot be read", t.secret)
	}
	return pair, nil
}

func (p *keyPair) artifacts() (*rotator.KeyPairArtifacts, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(p.keyPEM)
	if err != nil {
		return nil, errSignerKey // without the cause, which is about a key
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errSignerKey
	}
	return &rotator.KeyPairArtifacts{Cert: p.cert, Key: key, CertPEM: p.certPEM, KeyPEM: p.keyPEM}, nil
}

// refreshAt is when the successor of a certificate is to be made: after two thirds
// of its life, as it really is.
func refreshAt(cert *x509.Certificate) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore.Add(skew))
	return cert.NotAfter.Add(-life / 3)
}

func (p *keyPair) signedBy(ca *keyPair) bool {
	return p.cert.CheckSignatureFrom(ca.cert) == nil
}

// serves reports whether a client that trusts the bundle accepts the certificate,
// for all usages of the target and by each of the names that it was made for.
func (p *keyPair) serves(t target, bundle []*x509.Certificate, now time.Time) bool {
	if len(p.cert.DNSNames) == 0 {
		return false
	}
	return slices.ContainsFunc(bundle, func(ca *x509.Certificate) bool {
		caPEM, err := certutil.EncodeCertificates(ca)
		if err != nil {
			return false
		}
		for _, name := range p.cert.DNSNames {
			for _, usage := range t.usages {
				ok, err := rotator.ValidCert(caPEM, p.certPEM, p.keyPEM, name, &[]x509.ExtKeyUsage{usage}, now)
				if err != nil || !ok {
					return false
				}
			}
		}
		return true
	})
}

// isFor reports whether a certificate has exactly the names that are asked for.
func (p *keyPair) isFor(t target) bool {
	have, want := slices.Clone(p.cert.DNSNames), slices.Clone(t.names)
	slices.Sort(have)
	slices.Sort(want)
	return p.cert.Subject.CommonName == t.names[0] && slices.Equal(slices.Compact(have), slices.Compact(want))
}

// parseBundle returns the CAs in a bundle that can be read.
func parseBundle(bundle []byte) []*x509.Certificate {
	var cas []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.IsCA {
			cas = append(cas, cert)
		}
	}
	return cas
}

func encodeBundle(cas []*x509.Certificate) ([]byte, error) {
	bundle, err := certutil.EncodeCertificates(cas...)
	if err != nil {
		return nil, fmt.Errorf("encoding the bundle of CAs: %w", err)
	}
	return bundle, nil
}
