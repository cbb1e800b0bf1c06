// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"sync"
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

// stuckSecrets are those of a cluster that answers when a test lets it.
type stuckSecrets struct {
	corev1client.SecretInterface
	asked  chan struct{}
	answer chan error
	secret *corev1.Secret
}

func (s *stuckSecrets) Get(context.Context, string, metav1.GetOptions) (*corev1.Secret, error) {
	s.asked <- struct{}{}
	return s.secret, <-s.answer
}

// TestServedWhileNothingAnswers: where there is a certificate, one handshake waits for the
// cluster and the others continue; and a reading that fails late is not begun again at once.
func TestServedWhileNothingAnswers(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	ca, err := newCA("test", clk.Now(), 30*day)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issue(ca, target{secret: "test", names: []string{"localhost"}}, clk.Now(), day)
	if err != nil {
		t.Fatal(err)
	}
	secrets := &stuckSecrets{
		asked: make(chan struct{}, 10), answer: make(chan error, 1),
		secret: &corev1.Secret{Data: map[string][]byte{keyCert: pair.certPEM, keyKey: pair.keyPEM}},
	}
	served := NewServed(secrets, "test", clk)
	get := func() {
		t.Helper()
		if got, err := served.get(t.Context()); err != nil || !got.Leaf.Equal(pair.cert) {
			t.Errorf("served: %v, %v", got, err)
		}
	}
	secrets.answer <- nil
	get()
	<-secrets.asked
	clk.SetTime(clk.Now().Add(servedTTL))
	var waits sync.WaitGroup
	waits.Go(get)
	<-secrets.asked
	get() // or the test does not end
	clk.SetTime(clk.Now().Add(servedTimeout))
	secrets.answer <- context.DeadlineExceeded
	waits.Wait()
	get()
	if len(secrets.asked) > 0 {
		t.Error("the cluster is asked again at once")
	}
}
