// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// The annotations of a signer's Secret that say since when its CAs have been
// published everywhere.
const (
	annotationPublished     = "sandlot.io/ca-published-at"
	annotationNextPublished = "sandlot.io/next-ca-published-at"
)

// AnnotationRotateCA asks for the next CA now: with any value, on the Secret of a
// signer. It is taken away when that CA is made.
const AnnotationRotateCA = "sandlot.io/rotate-ca"

// objects are what the certificates of authorities are kept in, and what has to trust them.
type objects struct {
	store   *secrets.Store
	options Options
}

// loadedTarget is a target and what there is of it.
type loadedTarget struct {
	target
	secret *corev1.Secret
	pair   *keyPair
}

func (o *objects) loadSigner(ctx context.Context, a authority) (*corev1.Secret, signer, error) {
	secret, err := o.store.Secret(ctx, a.signer, corev1.SecretTypeTLS)
	if err != nil {
		return nil, signer{}, err
	}
	s := signer{
		current: parseCA(secret.Data[keyCert], secret.Data[keyKey]),
		next:    parseCA(secret.Data[keyNextCert], secret.Data[keyNextKey]),
	}
	_, s.requested = secret.Annotations[AnnotationRotateCA]
	if s.current != nil {
		s.published = secrets.ParseTime(secret.Annotations[annotationPublished])
	}
	if s.next != nil {
		s.nextPublished = secrets.ParseTime(secret.Annotations[annotationNextPublished])
	}
	return secret, s, nil
}

func (o *objects) saveSigner(ctx context.Context, secret *corev1.Secret, s signer) error {
	data := map[string][]byte{keyCert: s.current.certPEM, keyKey: s.current.keyPEM}
	if s.next != nil {
		data[keyNextCert], data[keyNextKey] = s.next.certPEM, s.next.keyPEM
	}
	if !s.requested || s.next != nil {
		delete(secret.Annotations, AnnotationRotateCA)
	}
	return o.store.SaveSecret(ctx, secret, data, map[string]string{
		annotationPublished:     secrets.FormatTime(s.published),
		annotationNextPublished: secrets.FormatTime(s.nextPublished),
	})
}

func (o *objects) loadTargets(ctx context.Context, a authority) ([]loadedTarget, error) {
	targets := make([]loadedTarget, 0, len(a.targets))
	for _, t := range a.targets {
		secret, err := o.store.Secret(ctx, t.secret, corev1.SecretTypeTLS)
		if err != nil {
			return nil, err
		}
		targets = append(targets, loadedTarget{
			target: t, secret: secret,
			pair: parseKeyPair(secret.Data[keyCert], secret.Data[keyKey]),
		})
	}
	return targets, nil
}

// ensureBundle writes the CAs to trust into the ConfigMap. That is where they are
// kept: who removes one there, because it is trusted no longer, removes it
// everywhere. Only if it is lost or spoilt are they taken from where they were
// published.
func (o *objects) ensureBundle(ctx context.Context, a authority, s signer, f *found, now time.Time) (loadedBundle, error) {
	object, err := o.store.ConfigMap(ctx, a.bundle)
	if err != nil {
		return loadedBundle{}, err
	}
	known := parseBundle([]byte(object.Data[keyBundle]))
	if len(known) == 0 {
		known = f.publishedCAs()
	}
	bundle := loadedBundle{cas: s.trusted(known, now)}
	if bundle.pem, err = encodeBundle(bundle.cas); err != nil {
		return loadedBundle{}, err
	}
	return bundle, o.store.SaveConfigMap(ctx, object, map[string]string{keyBundle: string(bundle.pem)})
}

func (f *found) publishedCAs() []*x509.Certificate {
	var cas []*x509.Certificate
	for _, service := range f.services {
		cas = append(cas, parseBundle(service.caBundle)...)
	}
	for _, t := range f.targets {
		cas = append(cas, parseBundle(t.secret.Data[keyCA])...)
	}
	return cas
}
