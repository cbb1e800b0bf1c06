// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestServed: what is in the Secret is served, as soon as it is there, and its successor
// soon after that. While it cannot be read, the last one is.
func TestServed(t *testing.T) {
	f := newFixture(t)
	client, err := corev1client.NewForConfig(f.user)
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	served := NewServed(client.Secrets(f.options.Namespace), ManagerServingSecret, clk)
	names := f.options.authorities()[0].targets[1].names
	ca, err := newCA("test", clk.Now(), 30*day)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.options.Namespace, Name: ManagerServingSecret}, Type: corev1.SecretTypeTLS}
	put := func() *keyPair {
		t.Helper()
		pair, err := issue(ca, target{secret: secret.Name, names: names}, clk.Now(), day)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data = map[string][]byte{keyCert: pair.certPEM, keyKey: pair.keyPEM}
		if secret.ResourceVersion == "" {
			err = f.client.Create(t.Context(), secret)
		} else {
			err = f.client.Update(t.Context(), secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	check := func(when string, want *keyPair) {
		t.Helper()
		server := httptest.NewUnstartedServer(nil)
		server.TLS = &tls.Config{GetCertificate: served.GetCertificate}
		server.StartTLS()
		defer server.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		if err != nil {
			if want != nil {
				t.Errorf("%s: %v", when, err)
			}
			return
		}
		defer conn.Close()
		if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; want == nil || !got.Equal(want.cert) {
			t.Errorf("%s: another certificate is served", when)
		}
	}
	step := func(d time.Duration) { clk.SetTime(clk.Now().Add(d)) }
	check("before there is a Secret", nil)
	first := put()
	step(missingTTL)
	check("at once", first)
	second := put()
	check("before its time", first)
	step(servedTTL)
	check("after its successor came", second)
	if err := f.client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	step(servedTTL)
	check("when the Secret is gone", second)
}
