// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
)

const (
	// DefaultNamespace is where the Secrets of keys are.
	DefaultNamespace = "sandlot-e2b-keys"
	// SecretType is the type of the Secret of a key.
	SecretType corev1.SecretType = "sandlot.io/e2b-key"
	// LabelTeam is the label of the Secret of a key that has its team.
	LabelTeam = "sandlot.io/e2b-team"

	namePrefix = "e2b-key-"
	dataSalt   = "salt"
	dataHash   = "hash"
	dataName   = "name"
	// dataAncestors are the ids of the ancestors.
	dataAncestors = "makers"
)

// Secrets keeps each key in a Secret of one namespace: its name is that of the id, and it
// cannot be changed. Users who may write Secrets there can make keys for every team.
type Secrets struct {
	client typed.SecretInterface
	table  *table
	// known has a slot for each read of a key that the watch has reported. Other ids are
	// read by unknown: guesses do not hold up keys that are known.
	known   chan struct{}
	unknown *lookups.Group[Key]
}

var _ Backend = (*Secrets)(nil)

// NewSecrets returns the keys in a namespace. As long as Run runs they are known without
// being read one by one.
func NewSecrets(client typed.SecretsGetter, namespace string, clk clock.PassiveClock) *Secrets {
	return &Secrets{
		client: client.Secrets(namespace), table: newTable(clk),
		known:   make(chan struct{}, maxConcurrentReads),
		unknown: lookups.New[Key](lookups.Limits{AtOnce: maxConcurrentReads, Misses: missBurst, MissesPerSecond: missesPerSecond, Clock: clk}),
	}
}

// Read implements Backend.
func (s *Secrets) Read(ctx context.Context, id string) (Key, error) {
	if !IsID(id) {
		return Key{}, ErrNotFound
	}
	secret, err := s.client.Get(ctx, namePrefix+id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Key{}, ErrNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("reading the Secret of API key %s: %w", id, err)
	}
	return fromSecret(secret)
}

// List implements Backend.
func (s *Secrets) List(ctx context.Context, team string) (kept []Key, _ error) {
	options := metav1.ListOptions{LabelSelector: labels.Set{LabelTeam: team}.String(), FieldSelector: ofType}
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.client.List(ctx, options)
	}
	err := pager.New(page).EachListItem(ctx, options, func(object runtime.Object) error {
		key, err := fromSecret(object.(*corev1.Secret))
		if err == nil { // another is no key for anyone else either
			kept = append(kept, key)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the Secrets of API keys of team %s: %w", team, err)
	}
	return kept, nil
}

// Create implements Backend.
func (s *Secrets) Create(ctx context.Context, key Key) (Key, error) {
	removals := s.table.removalCount()
	secret, err := s.client.Create(ctx, toSecret(key), metav1.CreateOptions{})
	if err != nil {
		return Key{}, fmt.Errorf("creating the Secret of API key %s: %w", key.ID, err)
	}
	if key, err = fromSecret(secret); err != nil {
		return Key{}, err
	}
	s.table.cacheRead(key.ID, answer{key: key}, removals)
	return key, nil
}

// Delete implements Backend.
func (s *Secrets) Delete(ctx context.Context, id string) error {
	if !IsID(id) {
		return ErrNotFound
	}
	err := s.client.Delete(ctx, namePrefix+id, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the Secret of API key %s: %w", id, err)
	}
	s.table.onLocalDelete(id)
	if err != nil {
		return ErrNotFound
	}
	return nil
}

// ofType selects the Secrets that are keys.
var ofType = fields.OneTermEqualSelector("type", string(SecretType)).String()

func toSecret(key Key) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: namePrefix + key.ID, Labels: map[string]string{LabelTeam: key.Team}},
		Type:       SecretType,
		Immutable:  new(true),
		Data: map[string][]byte{
			dataSalt: key.Salt, dataHash: key.Hash, dataName: []byte(key.Name), dataAncestors: []byte(strings.Join(key.Ancestors, " ")),
		},
	}
}

func fromSecret(secret *corev1.Secret) (Key, error) {
	id, ok := strings.CutPrefix(secret.Name, namePrefix)
	if !ok || secret.Type != SecretType {
		return Key{}, fmt.Errorf("secret %s/%s %w", secret.Namespace, secret.Name, errDamaged)
	}
	key, err := parseKey(id, secret.Labels[LabelTeam], string(secret.Data[dataName]), secret.CreationTimestamp.Time.UTC(),
		strings.Fields(string(secret.Data[dataAncestors])), secret.Data[dataSalt], secret.Data[dataHash])
	if err != nil {
		return Key{}, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return key, nil
}
