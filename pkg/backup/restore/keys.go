// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

// The Secret of the API servers' EncryptionConfiguration, and the key in it.
const (
	EncryptionSecret = "sandlot-encryption"
	encryptionKey    = "config.yaml"
)

// encryptionConfig is what of an EncryptionConfiguration has to be known to join two. What is
// in the providers is kept as it is.
type encryptionConfig struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []encryptionResources `json:"resources"`
}

type encryptionResources struct {
	Resources []string          `json:"resources"`
	Providers []json.RawMessage `json:"providers"`
}

// keepKeys makes sure that API servers can read what a backup was encrypted with: its
// configuration is that of the install if there is none, and is added behind it otherwise.
// Without a file it was not encrypted, and can be read by an install that has no configuration.
// With dryRun nothing is changed, so that keys which cannot be kept are found out before
// anything is stopped.
func keepKeys(ctx context.Context, c cluster, file string, dryRun bool) error {
	var old []byte
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		old = text
	}
	var dry []string
	if dryRun {
		dry = []string{metav1.DryRunAll}
	}
	secrets := c.client.CoreV1().Secrets(c.namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, err := secrets.Get(ctx, EncryptionSecret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && len(old) == 0 {
			return nil
		}
		if apierrors.IsNotFound(err) {
			// Only this way of creating can be allowed by name.
			secret := applycorev1.Secret(EncryptionSecret, c.namespace).
				WithLabels(map[string]string{"app.kubernetes.io/part-of": "sandlot"}).
				WithData(map[string][]byte{encryptionKey: old})
			_, err = secrets.Apply(ctx, secret, metav1.ApplyOptions{FieldManager: SecretName, DryRun: dry})
			return err
		}
		if err != nil {
			return err
		}
		joined, err := joinKeys(secret.Data[encryptionKey], old)
		if err != nil || bytes.Equal(joined, secret.Data[encryptionKey]) {
			return err
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[encryptionKey] = joined
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{DryRun: dry})
		return err
	})
	if err != nil {
		return fmt.Errorf("keeping the keys of the backup in Secret %s: %w", EncryptionSecret, err)
	}
	return nil
}

// keyring is a provider that has keys, of the kind that sandlot-controller-manager makes.
type keyring struct {
	Secretbox *struct {
		Keys []namedKey `json:"keys"`
	} `json:"secretbox"`
}

type namedKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// addKeys adds the keys of a provider behind those of the one of its kind, and reports whether
// it could: sandlot-controller-manager takes a configuration with two of a kind for one that is
// not its own, and rotates no key in it. Two keys of one name must have a provider each.
func addKeys(providers []json.RawMessage, provider json.RawMessage) (bool, error) {
	var from keyring
	if err := json.Unmarshal(provider, &from); err != nil || from.Secretbox == nil {
		return false, err
	}
	for i, p := range providers {
		var to keyring
		if err := json.Unmarshal(p, &to); err != nil {
			return false, err
		}
		if to.Secretbox == nil {
			continue
		}
		for _, key := range from.Secretbox.Keys {
			j := slices.IndexFunc(to.Secretbox.Keys, func(k namedKey) bool { return k.Name == key.Name })
			if j < 0 {
				to.Secretbox.Keys = append(to.Secretbox.Keys, key)
			} else if to.Secretbox.Keys[j] != key {
				return false, nil
			}
		}
		joined, err := json.Marshal(to)
		providers[i] = joined
		return true, err
	}
	return false, nil
}

// plain is the provider that reads what is not encrypted.
var plain = json.RawMessage(`{"identity":{}}`)

// joinKeys returns a configuration that writes as now says, and reads what either of both can
// read. An old one that is empty encrypts nothing.
func joinKeys(now, old []byte) ([]byte, error) {
	if len(bytes.TrimSpace(now)) == 0 {
		return old, nil
	}
	var to, from encryptionConfig
	if err := yaml.Unmarshal(now, &to); err != nil {
		return nil, fmt.Errorf("the configuration of the install: %w", err)
	}
	if err := yaml.Unmarshal(old, &from); err != nil {
		return nil, fmt.Errorf("the configuration of the backup: %w", err)
	}
	if len(bytes.TrimSpace(old)) == 0 {
		for _, rule := range to.Resources {
			from.Resources = append(from.Resources, encryptionResources{Resources: rule.Resources, Providers: []json.RawMessage{plain}})
		}
	}
	changed := false
	for _, rule := range from.Resources {
		i := slices.IndexFunc(to.Resources, func(r encryptionResources) bool { return slices.Equal(r.Resources, rule.Resources) })
		if i < 0 {
			return nil, fmt.Errorf("the configuration of the backup has a rule for %v and that of the install has none: join them by hand, in Secret %s", rule.Resources, EncryptionSecret)
		}
		for _, provider := range rule.Providers {
			if slices.ContainsFunc(to.Resources[i].Providers, func(p json.RawMessage) bool { return bytes.Equal(p, provider) }) {
				continue
			}
			added, err := addKeys(to.Resources[i].Providers, provider)
			if err != nil {
				return nil, fmt.Errorf("the providers for %v: %w", rule.Resources, err)
			}
			if !added {
				to.Resources[i].Providers = append(to.Resources[i].Providers, provider)
			}
			changed = true
		}
	}
	if !changed {
		return now, nil
	}
	return yaml.Marshal(to)
}
