// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RetryConflict is how soon a keeper tries again after a write conflict.
const RetryConflict = 200 * time.Millisecond

// ourLabels mark what we made. What others add is left alone.
var ourLabels = map[string]string{
	"app.kubernetes.io/part-of":    "sandlot",
	"app.kubernetes.io/managed-by": "sandlot-controller-manager",
}

// Store reads and writes Secrets and ConfigMaps of a namespace. Each write is refused if
// another client wrote meanwhile.
type Store struct {
	// Reader reads the API, not a cache: decisions about keys must not be made on
	// old state, and there are few objects that change seldom.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
}

// Secret returns an empty one of the type, ready to be created, if there is none.
func (s *Store) Secret(ctx context.Context, name string, secretType corev1.SecretType) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Type: secretType}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	return secret, nil
}

// SaveSecret creates or updates the Secret with the data and the annotations, unless it
// has them.
func (s *Store) SaveSecret(ctx context.Context, secret *corev1.Secret, data map[string][]byte, annotations map[string]string) error {
	if secret.ResourceVersion != "" && maps.EqualFunc(secret.Data, data, bytes.Equal) && includes(secret.Annotations, annotations) {
		return nil
	}
	secret.Data = data
	merge(&secret.Labels, ourLabels)
	merge(&secret.Annotations, annotations)
	return s.write(ctx, "Secret", secret)
}

// ConfigMap returns an empty one, ready to be created, if there is none.
func (s *Store) ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting ConfigMap %s: %w", name, err)
	}
	return object, nil
}

// SaveConfigMap creates or updates the ConfigMap with the data, unless it has them.
func (s *Store) SaveConfigMap(ctx context.Context, object *corev1.ConfigMap, data map[string]string) error {
	if object.ResourceVersion != "" && maps.Equal(object.Data, data) {
		return nil
	}
	object.Data = data
	merge(&object.Labels, ourLabels)
	return s.write(ctx, "ConfigMap", object)
}

// write creates an object that was not read, and updates another.
func (s *Store) write(ctx context.Context, kind string, object client.Object) error {
	var err error
	if object.GetResourceVersion() == "" {
		err = s.Writer.Create(ctx, object)
	} else {
		err = s.Writer.Update(ctx, object)
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

// FormatTime returns a time for an annotation, and "" for none.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// ParseTime reads what FormatTime wrote. It returns zero for what is not a time: then it
// is noted again.
func ParseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t
}
