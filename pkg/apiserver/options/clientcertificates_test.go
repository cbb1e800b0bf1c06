// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

// certified is a certificate with its key.
type certified struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue makes a certificate of a client, or of a CA, that is valid from an hour ago. Without a parent it signs itself.
func issue(t *testing.T, parent *certified, name string, isCA bool, lifetime time.Duration) *certified {
	t.Helper()
	return issueFor(t, parent, name, isCA, lifetime, x509.ExtKeyUsageClientAuth)
}

func issueFor(t *testing.T, parent *certified, name string, isCA bool, lifetime time.Duration, usage x509.ExtKeyUsage) *certified {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{"testers"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime), BasicConstraintsValid: true, IsCA: isCA,
	}
	if isCA {
		template.KeyUsage = x509.KeyUsageCertSign
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	}
	if parent == nil {
		parent = &certified{template, key}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent.Certificate, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &certified{made, key}
}

// bundle is a file of CAs, which is read again when it is written.
type bundle struct {
	*dynamiccertificates.DynamicFileCAContent
	path string
}

func newBundle(t *testing.T, roots ...*certified) *bundle {
	t.Helper()
	b := &bundle{path: filepath.Join(t.TempDir(), "ca.crt")}
	b.write(t, roots...)
	var err error
	if b.DynamicFileCAContent, err = dynamiccertificates.NewDynamicCAContentFromFile("test", b.path); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bundle) write(t *testing.T, roots ...*certified) {
	t.Helper()
	var content []byte
	for _, root := range roots {
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	if err := os.WriteFile(b.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace replaces the CAs.
func (b *bundle) replace(t *testing.T, roots ...*certified) {
	t.Helper()
	b.write(t, roots...)
	if err := b.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// clients is what authenticates clients, and what counts how often the authenticator behind is asked.
type clients struct {
	t     *testing.T
	ca    *bundle
	clock *clocktesting.FakePassiveClock
	asked int
	authenticator.Request
}

// newClients returns the authenticator of the generic server behind one that remembers certificates.
func newClients(t *testing.T, roots ...*certified) *clients {
	t.Helper()
	c := &clients{t: t, ca: newBundle(t, roots...), clock: clocktesting.NewFakePassiveClock(time.Now())}
	behind, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{ClientCertificateCAContentProvider: c.ca}.New()
	if err != nil {
		t.Fatal(err)
	}
	c.Request = rememberClients(c.counted(behind), c.ca.VerifyOptions)
	c.Request.(*certificateMemory).clock = c.clock
	return c
}

func (c *clients) counted(behind authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		c.asked++
		return behind.AuthenticateRequest(req)
	})
}

// expect makes a request with certificates, and checks whose it is, or that it is no one's. It checks if
// the authenticator behind was asked.
func (c *clients) expect(who string, asked bool, presented ...*certified) *authenticator.Response {
	c.t.Helper()
	return c.expectRequest(httptest.NewRequestWithContext(c.t.Context(), http.MethodGet, "/", nil), who, asked, presented...)
}

func (c *clients) expectRequest(req *http.Request, who string, asked bool, presented ...*certified) *authenticator.Response {
	c.t.Helper()
	req.TLS = &tls.ConnectionState{}
	for _, certificate := range presented {
		req.TLS.PeerCertificates = append(req.TLS.PeerCertificates, certificate.Certificate)
	}
	before := c.asked
	response, ok, err := c.AuthenticateRequest(req)
	switch {
	case who == "" && ok:
		c.t.Errorf("the request is that of %s, want no user", response.User.GetName())
	case who != "" && (!ok || response.User.GetName() != who):
		c.t.Errorf("the request is no request of %s: %v, %v", who, ok, err)
	}
	if got := c.asked > before; got != asked {
		c.t.Errorf("the authenticator behind was asked: %t, want %t", got, asked)
	}
	return response
}

// TestVerifiedOnce checks that the certificate of a client is verified once, and that its user is always the same.
func TestVerifiedOnce(t *testing.T) {
	ca := issue(t, nil, "ca", true, time.Hour)
	ann, bob := issue(t, ca, "ann", false, time.Hour), issue(t, ca, "bob", false, time.Hour)
	c := newClients(t, ca)
	first := c.expect("ann", true, ann)
	again := c.expect("ann", false, ann)
	for _, response := range []*authenticator.Response{first, again} {
		if want := []string{"testers", user.AllAuthenticated}; !slices.Equal(response.User.GetGroups(), want) {
			t.Errorf("groups %q, want %q", response.User.GetGroups(), want)
		}
	}
	if a, b := first.User.GetExtra()[user.CredentialIDKey], again.User.GetExtra()[user.CredentialIDKey]; len(a) != 1 || !slices.Equal(a, b) {
		t.Errorf("the credential is %q, and then %q", a, b)
	}
	c.expect("bob", true, bob)
	c.expect("bob", false, bob)
	c.expect("ann", false, ann)
	c.expect("", true) // no certificate
}

// TestUnverifiedIsNotRemembered checks that only what was verified is remembered: not the certificate of another CA,
// not one without the usage, and no certificate of a request that was accepted for another reason.
func TestUnverifiedIsNotRemembered(t *testing.T) {
	ca, other := issue(t, nil, "ca", true, time.Hour), issue(t, nil, "ca", true, time.Hour)
	ann := issue(t, ca, "ann", false, time.Hour)
	forged := issue(t, other, "ann", false, time.Hour) // the same names, and the CA has the same too
	server := issueFor(t, ca, "ann", false, time.Hour, x509.ExtKeyUsageServerAuth)
	c := newClients(t, ca)
	c.expect("ann", true, ann)
	c.expect("ann", false, ann)
	for range 2 {
		c.expect("", true, forged)
		c.expect("", true, server, ann)
	}

	byToken := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "token"}}, true, nil
	})
	c.Request = rememberClients(c.counted(byToken), c.ca.VerifyOptions)
	for range 2 {
		c.expect("token", true, forged)
	}
}

// TestForgottenWithTheCA checks that what is remembered is forgotten when the bundle of CAs changes.
func TestForgottenWithTheCA(t *testing.T) {
	before, after := issue(t, nil, "ca", true, time.Hour), issue(t, nil, "ca", true, time.Hour)
	ann, bob := issue(t, before, "ann", false, time.Hour), issue(t, after, "bob", false, time.Hour)
	c := newClients(t, before)
	c.expect("ann", true, ann)
	c.expect("", true, bob)
	c.ca.replace(t, before) // which is no change
	c.expect("ann", false, ann)

	c.ca.replace(t, before, after)
	c.expect("ann", true, ann)
	c.expect("ann", false, ann)
	c.expect("bob", true, bob)

	c.ca.replace(t, after)
	c.expect("", true, ann)
	c.expect("", true, ann)
	c.expect("bob", true, bob)
	c.expect("bob", false, bob)

	c.ca.replace(t, before)
	c.expect("ann", true, ann)
	c.expect("", true, bob)
}

// TestForgottenWhenExpired checks that no certificate is remembered beyond its time, or beyond that of its CA.
func TestForgottenWhenExpired(t *testing.T) {
	for name, lifetimes := range map[string]struct{ ca, leaf time.Duration }{
		"certificate": {2 * time.Hour, time.Hour}, "CA": {time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			ca := issue(t, nil, "ca", true, lifetimes.ca)
			ann := issue(t, ca, "ann", false, lifetimes.leaf)
			c := newClients(t, ca)
			now := c.clock.Now()
			c.expect("ann", true, ann)
			for after, asked := range map[time.Duration]bool{59 * time.Minute: false, 61 * time.Minute: true, -61 * time.Minute: true} {
				c.clock.SetTime(now.Add(after))
				c.expect("ann", asked, ann) // by the clock of the authenticator behind all is well
			}
		})
	}
}

// TestIntermediates checks that a certificate which is verified by others that come with it is not verified without.
func TestIntermediates(t *testing.T) {
	ca := issue(t, nil, "ca", true, time.Hour)
	between := issue(t, ca, "between", true, 30*time.Minute)
	ann := issue(t, between, "ann", false, time.Hour)
	c := newClients(t, ca)
	now := c.clock.Now()
	c.expect("ann", true, ann, between)
	c.expect("ann", false, ann, between)
	c.expect("", true, ann)
	c.expect("", true, ann, ca)
	c.clock.SetTime(now.Add(31 * time.Minute)) // when the one between has expired
	c.expect("ann", true, ann, between)
}

// TestFrontProxy checks that the certificate of a front proxy is remembered, and not what it says in headers.
func TestFrontProxy(t *testing.T) {
	ca := issue(t, nil, "ca", true, time.Hour)
	proxy, user := issue(t, ca, "front-proxy", false, time.Hour), issue(t, ca, "ann", false, time.Hour)
	allowed := []string{"front-proxy"}
	c := &clients{t: t, ca: newBundle(t, ca)}
	config := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider: c.ca, UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders: headerrequest.StaticStringSlice{}, GroupHeaders: headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(func() []string { return allowed }),
	}
	behind, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{RequestHeaderConfig: config}.New()
	if err != nil {
		t.Fatal(err)
	}
	c.Request = rememberFrontProxy(c.counted(behind), config)
	from := func(who string) *http.Request {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if who != "" {
			req.Header.Set("X-Remote-User", who)
		}
		return req
	}
	c.expectRequest(from("bob"), "bob", true, proxy)
	req := from("carol")
	c.expectRequest(req, "carol", false, proxy)
	if got := req.Header.Get("X-Remote-User"); got != "" {
		t.Errorf("the header of the front proxy is still there: %q", got)
	}
	c.expectRequest(from(""), "", true, proxy) // it says nothing
	for range 2 {
		c.expectRequest(from("bob"), "", true, user) // no front proxy
	}
	allowed = []string{"ann"}
	c.expectRequest(from("bob"), "", true, proxy)
	c.expectRequest(from("bob"), "bob", true, user)
	c.expectRequest(from("bob"), "bob", false, user)
}

// TestAloneVerifiesOnce checks that a server without a cluster remembers certificates.
func TestAloneVerifiesOnce(t *testing.T) {
	outsideCluster(t)
	ca := issue(t, nil, "ca", true, time.Hour)
	ann := issue(t, ca, "ann", false, time.Hour)
	o := parse(t, "--embedded-etcd-dir=d", "--client-ca-file="+newBundle(t, ca).path)
	config := apiserver.NewConfig().GenericConfig
	config.SecureServing = &genericapiserver.SecureServingInfo{}
	if err := o.applyAlone(config); err != nil {
		t.Fatal(err)
	}
	c := &clients{t: t}
	c.Request = config.Authentication.Authenticator
	before := verifications(t)
	for range 3 {
		c.expect("ann", false, ann)
	}
	if got := verifications(t) - before; got != 1 {
		t.Errorf("the certificate was verified %d times, want once", got)
	}
}

// verifications returns how many certificates the authenticator of the generic server has verified.
func verifications(t *testing.T) (n uint64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "apiserver_client_certificate_expiration_seconds" {
			n = family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}

// TestBoundedMemory checks that no number of certificates takes more than its share of memory.
func TestBoundedMemory(t *testing.T) {
	ca := issue(t, nil, "ca", true, time.Hour)
	ann := issue(t, ca, "ann", false, time.Hour)
	c := newClients(t, ca)
	remembered := c.Request.(*certificateMemory)
	c.expect("ann", true, ann)
	for i := range maxVerified {
		remembered.verified.Add([32]byte{byte(i), byte(i >> 8), 1}, verifiedChain{})
	}
	c.expect("ann", true, ann)
	if got := remembered.verified.Len(); got != maxVerified {
		t.Errorf("%d certificates are remembered, want %d", got, maxVerified)
	}
}
