// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// maxVerified is how many client certificates are remembered.
const maxVerified = 1024

// certificateMemory is an authenticator that verifies the certificate of a client once, and not with each request
// of its connection. A request whose certificate is not known is for the authenticator behind.
type certificateMemory struct {
	authenticator.Request
	// options are those by which the authenticator behind verifies certificates. Other options have other roots.
	options x509request.VerifyOptionFunc
	// users returns the user of a request whose certificate is verified.
	users authenticator.Request
	// verified has a verifiedChain for each list of certificates that a client presented, by its hash.
	verified *lru.Cache
	clock    clock.PassiveClock
}

// verifiedChain is a chain from a client's certificate to one of the roots.
type verifiedChain struct {
	roots *x509.CertPool
	chain []*x509.Certificate
}

func newCertificateMemory(behind authenticator.Request, options x509request.VerifyOptionFunc, users authenticator.Request) *certificateMemory {
	return &certificateMemory{
		Request: behind, options: options, users: group.NewAuthenticatedGroupAdder(users),
		verified: lru.New(maxVerified), clock: clock.RealClock{},
	}
}

// rememberClients remembers the certificates of users.
func rememberClients(behind authenticator.Request, options x509request.VerifyOptionFunc) authenticator.Request {
	return newCertificateMemory(behind, options, authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return x509request.CommonNameUserConversion.User(req.TLS.PeerCertificates)
	}))
}

// rememberFrontProxy remembers the certificates of front proxies, which say in headers who the user is.
func rememberFrontProxy(behind authenticator.Request, c *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	headers := headerrequest.NewDynamic(c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes)
	return newCertificateMemory(behind, c.CAContentProvider.VerifyOptions, authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		allowed := c.AllowedClientNames.Value()
		if len(allowed) > 0 && !slices.Contains(allowed, req.TLS.PeerCertificates[0].Subject.CommonName) {
			return nil, false, nil
		}
		return headers.AuthenticateRequest(req)
	}))
}

// AuthenticateRequest implements authenticator.Request.
func (r *certificateMemory) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return r.Request.AuthenticateRequest(req)
	}
	options, ok := r.options()
	key := hashOf(req.TLS.PeerCertificates)
	isVerified := ok && r.isVerified(key, options.Roots)
	if isVerified {
		if response, ok, err := r.users.AuthenticateRequest(req); ok && err == nil {
			return response, true, nil
		}
	}
	response, accepted, err := r.Request.AuthenticateRequest(req)
	if accepted && err == nil && ok && !isVerified {
		r.verify(key, req.TLS.PeerCertificates, options)
	}
	return response, accepted, err
}

// hashOf returns a hash of all that a client presented: its certificate, and those between that and a root.
func hashOf(presented []*x509.Certificate) [sha256.Size]byte {
	if len(presented) == 1 {
		return sha256.Sum256(presented[0].Raw)
	}
	var raw []byte
	for _, certificate := range presented {
		raw = append(raw, certificate.Raw...)
	}
	return sha256.Sum256(raw)
}

// isVerified reports whether a chain from these certificates to one of the roots is known, all of which is valid now.
func (r *certificateMemory) isVerified(key [sha256.Size]byte, roots *x509.CertPool) bool {
	known, ok := r.verified.Get(key)
	if !ok {
		return false
	}
	verified, now := known.(verifiedChain), r.clock.Now()
	return verified.roots == roots && !slices.ContainsFunc(verified.chain, func(c *x509.Certificate) bool {
		return now.Before(c.NotBefore) || now.After(c.NotAfter)
	})
}

// verify verifies certificates as the authenticator behind does, and remembers those that are good. Only a request
// that was accepted comes so far.
func (r *certificateMemory) verify(key [sha256.Size]byte, presented []*x509.Certificate, options x509.VerifyOptions) {
	if options.Intermediates == nil && len(presented) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, intermediate := range presented[1:] {
			options.Intermediates.AddCert(intermediate)
		}
	}
	options.CurrentTime = r.clock.Now()
	if chains, err := presented[0].Verify(options); err == nil {
		r.verified.Add(key, verifiedChain{options.Roots, chains[0]})
	}
}
