// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package localpki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"

	"k8s.io/utils/clock"
)

// Authority is a CA that is kept in a folder, beside what it has signed.
type Authority struct {
	store store
	ca    *pair
}

// Leaf is what a certificate is to be for.
type Leaf struct {
	CommonName   string
	Organization []string
	// Hosts are the names and addresses of a server; without any it is none.
	Hosts []string
	// Client lets the certificate say who a client is.
	Client bool
}

// OpenAuthority returns the CA that is kept in dir under a name. It makes one if
// that is missing, damaged or near its end.
func OpenAuthority(dir, name, commonName string, clock clock.PassiveClock) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of certificates: %w", err)
	}
	store := store{dir: dir, now: clock.Now()}
	ca, err := store.ensure(name, nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotAfter:              store.now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	})
	if err != nil {
		return nil, err
	}
	return &Authority{store: store, ca: ca}, nil
}

// CA returns the certificate of the CA in PEM, without its key.
func (a *Authority) CA() []byte { return a.ca.pem.Cert }

// Ensure returns the certificate that is kept under a name. It makes one if that
// is missing, damaged, near its end, of another CA or not for all hosts.
func (a *Authority) Ensure(name string, leaf Leaf) (KeyPair, error) {
	kept, err := a.store.ensure(name, a.ca, a.template(leaf))
	if err != nil {
		return KeyPair{}, err
	}
	return kept.pem, nil
}

// Issue returns a new certificate that is not kept.
func (a *Authority) Issue(leaf Leaf) (KeyPair, error) {
	made, err := a.store.issue(a.ca, a.template(leaf))
	if err != nil {
		return KeyPair{}, fmt.Errorf("making a certificate for %s: %w", leaf.CommonName, err)
	}
	return made.pem, nil
}

func (a *Authority) template(leaf Leaf) *x509.Certificate {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organization},
		NotAfter: a.store.now.Add(leafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if leaf.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}
