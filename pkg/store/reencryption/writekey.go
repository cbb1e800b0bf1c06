// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package reencryption

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/storage/value"
)

// Plain is what keyOf calls a value that is not encrypted.
const Plain = "plain"

// encryptedPrefix begins every value that k8s.io/apiserver encrypts. What follows is the
// provider, its version and the name of the key.
const encryptedPrefix = "k8s:enc:"

// keyOf names the key that a stored value is encrypted with, with its provider.
func keyOf(stored []byte) string {
	if !bytes.HasPrefix(stored, []byte(encryptedPrefix)) {
		return Plain
	}
	parts := bytes.SplitN(stored[len(encryptedPrefix):], []byte(":"), 4)
	return string(bytes.Join(parts[:min(3, len(parts))], []byte(":")))
}

// Resource is where the values of a resource are, and how they are encrypted.
type Resource struct {
	// Prefix begins the keys of its values in etcd, and no others.
	Prefix string
	// Transformer encrypts and decrypts them.
	Transformer value.Transformer
	// Renew, if not nil, returns what takes the place of a value that is encrypted with another
	// key than new ones, because who knows that key may know the value. Values are not renewed when
	// encryption is turned on or off: versions that do not encrypt may not read what is renewed.
	Renew func(plain []byte) ([]byte, error)
}

// writeKey names the keys that values of the resources are written with now.
func writeKey(ctx context.Context, resources []Resource) (string, error) {
	var keys []string
	for _, r := range resources {
		probe, err := r.Transformer.TransformToStorage(ctx, []byte("probe"), value.DefaultContext(r.Prefix))
		if err != nil {
			return "", fmt.Errorf("encrypting a value below %s: %w", r.Prefix, err)
		}
		keys = append(keys, keyOf(probe))
	}
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), ","), nil
}
