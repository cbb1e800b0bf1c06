// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

const (
	// servedTTL is how long a certificate is served before its Secret is read again. New
	// ones are made long before the old ones end.
	servedTTL = time.Minute
	// missingTTL is how long a Secret that is missing or damaged is not asked for again.
	missingTTL = time.Second
	// servedTimeout is how long a handshake waits for the Secret at most.
	servedTimeout = 5 * time.Second
)

// Served is the certificate in a Secret, for a server whose pod cannot mount it because
// the pod is what makes it.
type Served struct {
	secrets corev1client.SecretInterface
	name    string
	clock   clock.PassiveClock

	pair atomic.Pointer[tls.Certificate] // of the last reading that succeeded

	reading sync.Mutex // so that it is done once for many
	err     error      // of the last reading
	next    time.Time
}

// NewServed returns the certificate in a Secret, which need not be there yet.
func NewServed(secrets corev1client.SecretInterface, name string, clk clock.PassiveClock) *Served {
	return &Served{secrets: secrets, name: name, clock: clk}
}

// GetCertificate is for tls.Config. While the Secret cannot be read, it continues with what
// it has; without that it fails. While it is being read, only who reads waits, and those
// for whom there is nothing yet.
func (s *Served) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.get(hello.Context())
}

func (s *Served) get(ctx context.Context) (*tls.Certificate, error) {
	if pair := s.pair.Load(); pair == nil {
		s.reading.Lock()
	} else if !s.reading.TryLock() {
		return pair, nil
	}
	defer s.reading.Unlock()
	if !s.clock.Now().Before(s.next) {
		pair, err := s.read(ctx)
		ttl := missingTTL
		if err == nil {
			s.pair.Store(pair)
			ttl = servedTTL
		}
		// From when it is read, which may have taken longer than the TTL.
		s.err, s.next = err, s.clock.Now().Add(ttl)
	}
	if pair := s.pair.Load(); pair != nil {
		return pair, nil
	}
	return nil, s.err
}

func (s *Served) read(ctx context.Context) (*tls.Certificate, error) {
	// Others wait for the answer too: it does not end with the one who came first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), servedTimeout)
	defer cancel()
	secret, err := s.secrets.Get(secrets.WithoutBodies(log.IntoContext(ctx, klog.Background())), s.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting the Secret of the serving certificate: %w", err)
	}
	return servedPair(secret)
}

func servedPair(secret *corev1.Secret) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(secret.Data[keyCert], secret.Data[keyKey])
	if err != nil {
		// Without the cause, which may be about a key.
		return nil, errors.New("Secret " + secret.Name + " has no certificate with its key in " + keyCert + " and " + keyKey)
	}
	return &pair, nil
}
