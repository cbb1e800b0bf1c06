// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// storedKey is the key as it is stored. A store of which the key was never rotated has the
// secret of version 1 alone, 32 bytes and no JSON.
type storedKey struct {
	// Versions are in ascending order. The last one is the newest.
	Versions []storedVersion `json:"versions"`
}

type storedVersion struct {
	Version int    `json:"version"`
	Secret  []byte `json:"secret"`
	// Made is when it became the newest. It is zero for one that was the first.
	Made time.Time `json:"made,omitzero"`
}

// decode returns what is stored, in plain text.
func decode(plain []byte) (*storedKey, error) {
	if len(plain) == keyBytes {
		return &storedKey{Versions: []storedVersion{{Version: 1, Secret: plain}}}, nil
	}
	var stored storedKey
	if err := json.Unmarshal(plain, &stored); err != nil {
		return nil, fmt.Errorf("the key for agent-runtimes has neither %d bytes nor is it JSON: %w", keyBytes, err)
	}
	if len(stored.Versions) == 0 {
		return nil, fmt.Errorf("the key for agent-runtimes has no version")
	}
	before := 0
	for _, v := range stored.Versions {
		if v.Version <= before {
			return nil, fmt.Errorf("version %d of the key for agent-runtimes comes after version %d", v.Version, before)
		}
		if len(v.Secret) != keyBytes {
			return nil, fmt.Errorf("version %d of the key for agent-runtimes has %d bytes in place of %d", v.Version, len(v.Secret), keyBytes)
		}
		before = v.Version
	}
	return &stored, nil
}

func (s *storedKey) encode() ([]byte, error) {
	plain, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the key for agent-runtimes: %w", err)
	}
	return plain, nil
}

// newSecret returns a secret for a version.
func newSecret() []byte {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails
	return secret
}

// AddVersion returns what is to be stored in place of the key, in plain text, so that there
// is a new version of it from now on.
func AddVersion(plain []byte, now time.Time) ([]byte, error) {
	stored, err := decode(plain)
	if err != nil {
		return nil, err
	}
	newest := stored.Versions[len(stored.Versions)-1]
	stored.Versions = append(stored.Versions, storedVersion{Version: newest.Version + 1, Secret: newSecret(), Made: now.UTC().Truncate(time.Second)})
	return stored.encode()
}

// Use is which versions of the key sandboxes use. The zero value is none.
type Use struct{ versions sets.Set[int] }

// Add takes in a sandbox. One whose agent-runtime was not set up uses no version.
func (u *Use) Add(sb *v1alpha1.Sandbox) {
	u.addPoolToken(sb)
	if !usesKey(sb) {
		return
	}
	u.insert(versionOf(sb))
}

func (u *Use) insert(version int) {
	if u.versions == nil {
		u.versions = sets.New[int]()
	}
	u.versions.Insert(version)
}

// usesKey reports whether a sandbox uses a version of the key: its claim noted one, or bound it
// before there were versions and set its agent-runtime up, or uses it for the private ports of
// the E2B API. For others a token of the oldest version is returned, which is set nowhere.
func usesKey(sb *v1alpha1.Sandbox) bool {
	return versionOf(sb) != oldest || sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] != "" ||
		sb.Annotations[v1alpha1.AnnotationOwner] != "" && v1alpha1.IsE2BPrivate(sb)
}

// keptFor is how long a version is kept after it was the newest, whether it is used or not:
// servers that do not know a newer one yet may be about to bind sandboxes with it.
const keptFor = time.Hour

// removable returns whether there are versions that may be removed if they are not used.
func (s *storedKey) removable(now time.Time) bool {
	return len(s.Versions) > 1 && now.After(s.Versions[1].Made.Add(keptFor))
}

// remove removes the versions that are not used, and returns their numbers. The newest is
// not removed, nor one that was the newest not long ago.
func (s *storedKey) remove(use Use, now time.Time) []int {
	var kept []storedVersion
	var removed []int
	for i, v := range s.Versions {
		used := use.versions.Has(v.Version) || i == 0 && use.versions.Has(oldest)
		if used || i == len(s.Versions)-1 || !now.After(s.Versions[i+1].Made.Add(keptFor)) {
			kept = append(kept, v)
			continue
		}
		removed = append(removed, v.Version)
	}
	s.Versions = kept
	return removed
}
