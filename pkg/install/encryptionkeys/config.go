// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// keyBytes is how long the key of the provider secretbox is.
const keyBytes = 32

// resources are what the keys are for: all that is stored.
const resources = "*.agents.kruise.io"

// key is a key as the configuration has it.
type key struct {
	Name   string `json:"name"`
	Secret string `json:"secret"` // base64
}

// config is an EncryptionConfiguration as we make it.
type config struct {
	// keys can all be read with. The first is the one to write with, unless plain.
	keys []key
	// plain means that what is written is not encrypted.
	plain bool
}

// errForeign means that a configuration has more in it than we would make. It is not
// ours to replace, for values may be encrypted with it.
var errForeign = errors.New("it was not made by sandlot-controller-manager: it must have secretbox and identity for " + resources + " and nothing else")

// The part of apiserver.config.k8s.io/v1 that is used. The types of k8s.io/apiserver would
// bring that module to a client of the API.
type (
	configuration struct {
		APIVersion string      `json:"apiVersion"`
		Kind       string      `json:"kind"`
		Resources  []providers `json:"resources"`
	}
	providers struct {
		Resources []string   `json:"resources"`
		Providers []provider `json:"providers"`
	}
	provider struct {
		Secretbox *secretbox `json:"secretbox,omitempty"`
		Identity  *struct{}  `json:"identity,omitempty"`
	}
	secretbox struct {
		Keys []key `json:"keys"`
	}
)

const (
	configVersion = "apiserver.config.k8s.io/v1"
	configKind    = "EncryptionConfiguration"
)

// encode returns the file that sandlot-apiserver reads. What is in plain text can be read
// always, for it may be from before there was a key.
func (c config) encode() ([]byte, error) {
	list := []provider{{Identity: &struct{}{}}}
	if len(c.keys) > 0 {
		list = append(list, provider{Secretbox: &secretbox{c.keys}})
	}
	if !c.plain {
		slices.Reverse(list)
	}
	data, err := yaml.Marshal(configuration{configVersion, configKind, []providers{{[]string{resources}, list}}})
	if err != nil {
		return nil, fmt.Errorf("encoding the EncryptionConfiguration: %w", err)
	}
	return data, nil
}

// decode reads a configuration. Errors do not say what is in it.
func decode(data []byte) (config, error) {
	var file configuration
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		if yaml.Unmarshal(data, &configuration{}) == nil {
			return config{}, errForeign // it has fields that we do not know
		}
		return config{}, errUnreadable
	}
	if file.APIVersion != configVersion || file.Kind != configKind || len(file.Resources) == 0 {
		return config{}, errUnreadable
	}
	c, err := file.own()
	if err != nil {
		return config{}, err
	}
	for i, k := range c.keys {
		if !k.notable() {
			return config{}, errForeign
		}
		if !k.usable() || slices.ContainsFunc(c.keys[:i], k.isNamed) {
			return config{}, errUnreadable
		}
	}
	return c, nil
}

// own returns what we know of a configuration, or errForeign if there is more in it.
func (file configuration) own() (config, error) {
	entry := file.Resources[0]
	if len(file.Resources) > 1 || !slices.Equal(entry.Resources, []string{resources}) || len(entry.Providers) > 2 {
		return config{}, errForeign
	}
	var c config
	for i, p := range entry.Providers {
		switch {
		case p.Identity != nil && p.Secretbox == nil:
			c.plain = c.plain || i == 0
		case p.Secretbox != nil && p.Identity == nil && c.keys == nil:
			c.keys = p.Secretbox.Keys
		default:
			return config{}, errForeign
		}
	}
	return c, nil
}

// usable reports whether the API server could encrypt with the key.
func (k key) usable() bool {
	secret, err := base64.StdEncoding.DecodeString(k.Secret)
	return err == nil && len(secret) == keyBytes && k.Name != "" && !strings.Contains(k.Name, ":")
}

// notable reports whether the name of the key can be a line of the ConfigMap, which
// has those of keys of backups too.
func (k key) notable() bool {
	return len(k.Name) <= validation.DNS1123SubdomainMaxLength && strings.TrimSpace(k.Name) == k.Name && !strings.ContainsAny(k.Name, "\r\n")
}

// errUnreadable means that something has spoilt a configuration.
var errUnreadable = errors.New("it cannot be read")

func (k key) isNamed(other key) bool { return k.Name == other.Name }

func (c config) names() []string {
	names := make([]string, 0, len(c.keys))
	for _, k := range c.keys {
		names = append(names, k.Name)
	}
	return names
}

// nameTime is the time in the name of a key.
const nameTime = "20060102t150405z"

// newKey makes a key. Its name has the time in it, and something by which no two keys
// have the same.
func newKey(now time.Time) key {
	random := make([]byte, keyBytes+3)
	_, _ = rand.Read(random) // never fails
	return key{
		Name:   "key-" + now.UTC().Format(nameTime) + "-" + hex.EncodeToString(random[keyBytes:]),
		Secret: base64.StdEncoding.EncodeToString(random[:keyBytes]),
	}
}

// made returns when a key was made, and zero for one that is none of ours.
func (k key) made() time.Time {
	if parts := strings.Split(k.Name, "-"); len(parts) == 3 {
		t, _ := time.Parse(nameTime, parts[1]) // zero if it is no time
		return t
	}
	return time.Time{}
}
