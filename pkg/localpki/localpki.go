// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localpki makes and keeps the certificates of a server that runs
// without a cluster: an own CA, a serving certificate, and a client certificate
// for its one user.
package localpki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 3 * 365 * 24 * time.Hour

	// renewBefore is the rest of life with which no certificate starts a run, so
	// that a process may run for a year.
	renewBefore = 365 * 24 * time.Hour

	// mastersGroup is the group that may do everything in Kubernetes.
	mastersGroup = "system:masters"

	// clockSkew is how far the clock of a client may be behind ours.
	clockSkew = time.Hour
)

// KeyPair is a certificate and its key, in PEM.
type KeyPair struct {
	Cert, Key []byte
}

// PKI is what a server and its user need.
type PKI struct {
	CA      []byte  // the certificate alone
	Serving KeyPair // for the hosts that were asked for
	Admin   KeyPair // of the group system:masters
}

// Ensure returns the certificates kept in dir. It makes those that are missing
// or damaged, near their end, or not for the hosts asked for (names and
// addresses), and leaves the others as they are.
func Ensure(dir string, hosts []string, clock clock.PassiveClock) (*PKI, error) {
	ca, err := OpenAuthority(dir, "ca", "sandlot-ca", clock)
	if err != nil {
		return nil, err
	}
	serving, err := ca.Ensure("serving", Leaf{CommonName: "sandlot", Hosts: hosts})
	if err != nil {
		return nil, err
	}
	admin, err := ca.Ensure("admin", Leaf{CommonName: "sandlot-admin", Organization: []string{mastersGroup}, Client: true})
	if err != nil {
		return nil, err
	}
	return &PKI{CA: ca.CA(), Serving: serving, Admin: admin}, nil
}

// SelfSigned returns a certificate for a host that a program shows to itself. It is kept nowhere,
// and outlives the program.
func SelfSigned(host string, clock clock.PassiveClock) (KeyPair, error) {
	now := clock.Now()
	made, err := store{now: now}.issue(nil, &x509.Certificate{
		Subject:     pkix.Name{CommonName: host},
		DNSNames:    []string{host},
		NotAfter:    now.Add(caLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return KeyPair{}, fmt.Errorf("making the certificate of %s: %w", host, err)
	}
	return made.pem, nil
}

type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  KeyPair
}

type store struct {
	dir string
	now time.Time
}

// ensure returns the pair that is kept under name if it still does what is
// wanted, and otherwise a new one, signed by ca or, without one, by itself.
func (s store) ensure(name string, ca *pair, want *x509.Certificate) (*pair, error) {
	kept, err := s.load(name)
	if err != nil {
		return nil, err
	}
	if kept != nil && s.serves(kept, ca, want) {
		return kept, nil
	}
	made, err := s.issue(ca, want)
	if err != nil {
		return nil, fmt.Errorf("making certificate %s: %w", name, err)
	}
	if err := s.save(name, made); err != nil {
		return nil, err
	}
	return made, nil
}

func (s store) serves(p, ca *pair, want *x509.Certificate) bool {
	if s.now.Before(p.cert.NotBefore) || s.now.Add(renewBefore).After(p.cert.NotAfter) {
		return false
	}
	if ca == nil {
		return p.cert.IsCA
	}
	for _, ip := range want.IPAddresses {
		if p.cert.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	for _, name := range want.DNSNames {
		if p.cert.VerifyHostname(name) != nil {
			return false
		}
	}
	return p.cert.CheckSignatureFrom(ca.cert) == nil
}

func (s store) issue(ca *pair, want *x509.Certificate) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := *want
	template.SerialNumber = serial
	template.NotBefore = s.now.Add(-clockSkew)
	parent, signer := &template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.cert, ca.key
		if template.NotAfter.After(ca.cert.NotAfter) {
			template.NotAfter = ca.cert.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return newPair(cert, key)
}

func newPair(cert *x509.Certificate, key *ecdsa.PrivateKey) (*pair, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	certPEM, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return nil, err
	}
	return &pair{cert: cert, key: key, pem: KeyPair{Cert: certPEM, Key: keyPEM}}, nil
}

// load returns nil without an error for what is missing or damaged.
func (s store) load(name string) (*pair, error) {
	content, err := os.ReadFile(s.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate %s: %w", name, err)
	}
	both, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, nil //nolint:nilerr // damaged: a new one is made
	}
	key, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil
	}
	return newPair(both.Leaf, key)
}

// save keeps certificate and key in one file that appears whole or not at all,
// so that they cannot come apart.
func (s store) save(name string, p *pair) error {
	temp := s.file(name) + ".new"
	content := append(append([]byte{}, p.pem.Cert...), p.pem.Key...)
	if err := os.WriteFile(temp, content, 0o600); err != nil {
		return fmt.Errorf("keeping certificate %s: %w", name, err)
	}
	if err := os.Rename(temp, s.file(name)); err != nil {
		return fmt.Errorf("keeping certificate %s: %w", name, err)
	}
	return nil
}

func (s store) file(name string) string { return filepath.Join(s.dir, name+".pem") }
