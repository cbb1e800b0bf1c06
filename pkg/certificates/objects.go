// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// ourLabels mark what we made. What others add is left alone.
var ourLabels = map[string]string{
	"app.kubernetes.io/part-of":    "sandlot",
	"app.kubernetes.io/managed-by": "sandlot-controller-manager",
}

// loadedTarget is a target and what there is of it.
type loadedTarget struct {
	target
	secret *corev1.Secret
	pair   *keyPair
}

// getSecret returns an empty one, ready to be created, if there is none.
func (r *reconciler) getSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: name},
			Type:       corev1.SecretTypeTLS,
		}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	return secret, nil
}

// saveSecret creates or updates the Secret with the data, unless it has them.
func (r *reconciler) saveSecret(ctx context.Context, secret *corev1.Secret, data map[string][]byte, annotations map[string]string) error {
	if secret.ResourceVersion != "" && maps.EqualFunc(secret.Data, data, bytes.Equal) && includes(secret.Annotations, annotations) {
		return nil
	}
	secret.Data = data
	merge(&secret.Labels, ourLabels)
	merge(&secret.Annotations, annotations)
	return r.write(ctx, "Secret", secret)
}

// write creates an object that was not read, and updates another.
func (r *reconciler) write(ctx context.Context, kind string, object client.Object) error {
	var err error
	if object.GetResourceVersion() == "" {
		err = r.writer.Create(ctx, object)
	} else {
		err = r.writer.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}

func merge(into *map[string]string, from map[string]string) {
	if *into == nil {
		*into = map[string]string{}
	}
	maps.Copy(*into, from)
}

func includes(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

func (r *reconciler) loadSigner(ctx context.Context, a authority) (*corev1.Secret, signer, error) {
	secret, err := r.getSecret(ctx, a.signer)
	if err != nil {
		return nil, signer{}, err
	}
	s := signer{
		current: parseCA(secret.Data[keyCert], secret.Data[keyKey]),
		next:    parseCA(secret.Data[keyNextCert], secret.Data[keyNextKey]),
	}
	_, s.requested = secret.Annotations[AnnotationRotateCA]
	if s.current != nil {
		s.published = parseTime(secret.Annotations[annotationPublished])
	}
	if s.next != nil {
		s.nextPublished = parseTime(secret.Annotations[annotationNextPublished])
	}
	return secret, s, nil
}

func (r *reconciler) saveSigner(ctx context.Context, secret *corev1.Secret, s signer) error {
	data := map[string][]byte{keyCert: s.current.certPEM, keyKey: s.current.keyPEM}
	if s.next != nil {
		data[keyNextCert], data[keyNextKey] = s.next.certPEM, s.next.keyPEM
	}
	if !s.requested || s.next != nil {
		delete(secret.Annotations, AnnotationRotateCA)
	}
	return r.saveSecret(ctx, secret, data, map[string]string{
		annotationPublished:     formatTime(s.published),
		annotationNextPublished: formatTime(s.nextPublished),
	})
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// parseTime returns zero for what is not a time: then it is noted again.
func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t
}

func (r *reconciler) loadTargets(ctx context.Context, a authority) ([]loadedTarget, error) {
	targets := make([]loadedTarget, 0, len(a.targets))
	for _, t := range a.targets {
		secret, err := r.getSecret(ctx, t.secret)
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

func (r *reconciler) saveTarget(ctx context.Context, t loadedTarget, pair *keyPair, bundle []byte) error {
	return r.saveSecret(ctx, t.secret, map[string][]byte{keyCert: pair.certPEM, keyKey: pair.keyPEM, keyCA: bundle}, nil)
}

// ensureBundle writes the CAs to trust into the ConfigMap. That is where they are
// kept: who removes one there, because it is trusted no longer, removes it
// everywhere. Only if it is lost or spoilt are they taken from where they were
// published.
func (r *reconciler) ensureBundle(ctx context.Context, a authority, s signer, f *found, now time.Time) (loadedBundle, error) {
	object := &corev1.ConfigMap{}
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: a.bundle}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		return loadedBundle{}, fmt.Errorf("getting ConfigMap %s: %w", a.bundle, err)
	}
	known := parseBundle([]byte(object.Data[keyBundle]))
	if len(known) == 0 {
		known = f.publishedCAs()
	}
	bundle := loadedBundle{cas: s.trusted(known, now)}
	if bundle.pem, err = encodeBundle(bundle.cas); err != nil {
		return loadedBundle{}, err
	}
	if object.Data[keyBundle] == string(bundle.pem) {
		return bundle, nil
	}
	object.Data = map[string]string{keyBundle: string(bundle.pem)}
	merge(&object.Labels, ourLabels)
	object.Namespace, object.Name = r.options.Namespace, a.bundle
	return bundle, r.write(ctx, "ConfigMap", object)
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
