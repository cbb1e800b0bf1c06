// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// The objects that are rotated, as docs/certificates.md names them.
const (
	servingSecret = "sandlot-apiserver-serving"
	signerSecret  = "sandlot-signer"
	caConfigMap   = "sandlot-ca"
)

// TestCertificatesRotateUnderLoad rotates the serving certificate, then its CA, and
// at last takes away all trust in the old CA, while clients claim and delete
// without a pause: some through the aggregator, some directly, with a new
// connection for each call. Not one call fails.
func TestCertificatesRotateUnderLoad(t *testing.T) {
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 30)
	load := c.startLoad(t, ns)
	load.goOn(t) // for a while

	first := c.certificate(t)
	awaitServed(t, first)
	if err := c.kube.CoreV1().Secrets(controlplane.Namespace).Delete(t.Context(), servingSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := c.awaitCertificate(t, func(cert *x509.Certificate) bool { return !cert.Equal(first) })
	awaitServed(t, second)
	if second.CheckSignatureFrom(c.caBundle(t)[0]) != nil || first.Issuer.String() != second.Issuer.String() {
		t.Errorf("a new certificate of another CA: %s, before %s", second.Issuer, first.Issuer)
	}
	load.goOn(t)

	if err := c.kube.CoreV1().Secrets(controlplane.Namespace).Delete(t.Context(), signerSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	third := c.awaitCertificate(t, func(cert *x509.Certificate) bool { return cert.Issuer.String() != second.Issuer.String() })
	awaitServed(t, third)
	bundle := c.caBundle(t)
	if len(bundle) != 2 || third.CheckSignatureFrom(bundle[0]) != nil || second.CheckSignatureFrom(bundle[1]) != nil {
		t.Fatalf("%d CAs in the caBundle, want the new one and the old one", len(bundle))
	}
	load.goOn(t)

	// The aggregator trusts nothing but the new CA now. What goes on goes over new
	// connections to servers that show the new certificate.
	c.trustOnly(t, bundle[0])
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := c.caBundle(t); len(got) != 1 || !got[0].Equal(bundle[0]) {
			return fmt.Errorf("%d CAs in the caBundle", len(got))
		}
		return nil
	})
	awaitServed(t, third)
	load.goOn(t)

	load.stop(t)
	checkExpiryMetric(t, ns, third)
}

// rotationLoad is clients that claim and delete until they are stopped.
type rotationLoad struct {
	end     context.CancelFunc
	clients sync.WaitGroup

	aggregated, direct atomic.Int64 // claims made

	mu     sync.Mutex
	failed []error
}

func (c *clients) startLoad(t *testing.T, ns string) *rotationLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &rotationLoad{end: cancel}
	t.Cleanup(func() { cancel(); l.clients.Wait() })
	for i := range 6 {
		l.clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.note(&l.aggregated, claimAndDelete(c.config, ns, fmt.Sprintf("aggregated-%d-%d", i, n)))
			}
		})
	}
	for i := range sandlot.APIServers() {
		l.clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.note(&l.direct, claimDirectly(c.config, i, ns, fmt.Sprintf("direct-%d-%d", i, n)))
			}
		})
	}
	return l
}

func (l *rotationLoad) note(made *atomic.Int64, err error) {
	if err == nil {
		made.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// goOn returns when every kind of client has claimed a few times more.
func (l *rotationLoad) goOn(t *testing.T) {
	t.Helper()
	aggregated, direct := l.aggregated.Load()+20, l.direct.Load()+6
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if a, d := l.aggregated.Load(), l.direct.Load(); a < aggregated || d < direct {
			return fmt.Errorf("%d claims through the aggregator, %d directly, want %d and %d", a, d, aggregated, direct)
		}
		return nil
	})
}

func (l *rotationLoad) stop(t *testing.T) {
	t.Helper()
	l.end()
	l.clients.Wait()
	t.Logf("%d claims through the aggregator, %d directly", l.aggregated.Load(), l.direct.Load())
	if len(l.failed) > 0 {
		t.Errorf("%d calls failed, the first of them: %v", len(l.failed), errors.Join(l.failed[:min(len(l.failed), 5)]...))
	}
}

// claimAndDelete claims a sandbox and gives it back. How full the pool is does not
// matter, only that every call is answered.
func claimAndDelete(config *rest.Config, ns, name string) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	claims := client.AgentsV1alpha1().SandboxClaims(ns)
	claim := builders.Claim(name, 1)
	claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	// Not that of the test, so that no call is cut off when it ends.
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating claim %s: %w", name, err)
	}
	if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting claim %s: %w", name, err)
	}
	return nil
}

// claimDirectly does so at one replica, with a connection of its own that trusts
// what the Secret says at this moment.
func claimDirectly(config *rest.Config, replica int, ns, name string) error {
	direct, err := sandlot.Direct(replica, config)
	if err != nil {
		return err
	}
	// A dialer of its own keeps client-go from sharing the connection.
	transport, err := rest.TLSConfigFor(direct)
	if err != nil {
		return err
	}
	own := &http.Transport{TLSClientConfig: transport, DisableKeepAlives: true}
	defer own.CloseIdleConnections()
	return claimAndDelete(&rest.Config{Host: direct.Host, Transport: own, QPS: -1}, ns, name)
}

// certificate is the one that is in the Secret now.
func (c *clients) certificate(t *testing.T) *x509.Certificate {
	t.Helper()
	return c.awaitCertificate(t, func(*x509.Certificate) bool { return true })
}

func (c *clients) awaitCertificate(t *testing.T, want func(*x509.Certificate) bool) *x509.Certificate {
	t.Helper()
	var cert *x509.Certificate
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		secret, err := c.kube.CoreV1().Secrets(controlplane.Namespace).Get(ctx, servingSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		certs := parsePEM(t, secret.Data[corev1.TLSCertKey])
		if len(certs) != 1 || !want(certs[0]) {
			return errors.New("the Secret has not been made anew")
		}
		cert = certs[0]
		return nil
	})
	return cert
}

// awaitServed waits until each replica shows a certificate to who connects anew.
func awaitServed(t *testing.T, want *x509.Certificate) {
	t.Helper()
	for i := range sandlot.APIServers() {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			//nolint:gosec // what it shows is looked at here
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(sandlot.URL(i), "https://"))
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
			if !shown.Equal(want) {
				return fmt.Errorf("replica %d shows a certificate of %s", i, shown.NotBefore)
			}
			return nil
		})
	}
}

// caBundle is what the aggregator trusts.
func (c *clients) caBundle(t *testing.T) []*x509.Certificate {
	t.Helper()
	encoded := kubectl(t, "", "", "get", "apiservice", "v1alpha1.agents.kruise.io", "-o", "jsonpath={.spec.caBundle}")
	bundle, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return parsePEM(t, bundle)
}

// trustOnly removes all other CAs, as an admin does whose old CA is compromised.
func (c *clients) trustOnly(t *testing.T, ca *x509.Certificate) {
	t.Helper()
	configMaps := c.kube.CoreV1().ConfigMaps(controlplane.Namespace)
	object, err := configMaps.Get(t.Context(), caConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Data["ca-bundle.crt"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
	if _, err := configMaps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func parsePEM(t *testing.T, content []byte) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, cert)
	}
	return certs
}

// checkExpiryMetric looks for the metric that an operator's alert is about.
func checkExpiryMetric(t *testing.T, ns string, cert *x509.Certificate) {
	t.Helper()
	managers, err := sandlot.Metrics(scraper(t, ns).config)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("sandlot_certificate_expiration_timestamp_seconds{secret=%q} %g\n", servingSecret, float64(cert.NotAfter.Unix()))
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		code, body, err := getPage(ctx, managers, "/metrics")
		if err == nil && (code != http.StatusOK || !strings.Contains(body, want)) {
			err = fmt.Errorf("%d, not in the metrics: %s", code, want)
		}
		return err
	})
}
