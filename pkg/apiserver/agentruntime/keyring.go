// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// keyBytes is how long keys are.
const keyBytes = 32

// What the keys that are derived from the one that is stored are for. Other words make
// other keys.
const (
	forTokens = "sandlot.io access tokens v1"
	forSeals  = "sandlot.io sealed requests v1"
)

// Keyring has what tokens and seals are made with: all versions of the key that are stored.
// What is new is made with the newest, and each sandbox says which one it was bound with. All
// servers of a store have the same versions, or will after their next Refresh.
type Keyring struct {
	// source is where the versions are read again; nil if they never change.
	source *source
	// reading lets one Refresh at a time replace versions, so that they never go back.
	reading  sync.Mutex
	revision int64
	// versions are in ascending order. There is always one.
	versions atomic.Pointer[[]keys]
}

// keys are derived from one version of the key.
type keys struct {
	version       int
	tokens, seals []byte
}

// NewKeyring returns the keyring of what is stored, in plain text: see AddVersion.
func NewKeyring(plain []byte) (*Keyring, error) {
	all, err := derive(plain)
	if err != nil {
		return nil, err
	}
	k := &Keyring{}
	k.versions.Store(&all)
	return k, nil
}

func derive(plain []byte) ([]keys, error) {
	stored, err := decode(plain)
	if err != nil {
		return nil, err
	}
	var all []keys
	for _, v := range stored.Versions {
		tokens, err := hkdf.Key(sha256.New, v.Secret, nil, forTokens, keyBytes)
		if err != nil {
			return nil, fmt.Errorf("deriving a key: %w", err)
		}
		seals, err := hkdf.Key(sha256.New, v.Secret, nil, forSeals, keyBytes)
		if err != nil {
			return nil, fmt.Errorf("deriving a key: %w", err)
		}
		all = append(all, keys{version: v.Version, tokens: tokens, seals: seals})
	}
	return all, nil
}

// newest returns the version that new sandboxes are bound with.
func (k *Keyring) newest() *keys {
	all := *k.versions.Load()
	return &all[len(all)-1]
}

// errVersion means that a sandbox was bound with a version of the key that is not stored.
var errVersion = errors.New("its version of the key for agent-runtimes is not in the store: bind another sandbox, or restore a backup that has it")

// ensureVersion reads the key if a version that a sandbox names is not known, again and again while the
// store cannot be read: see podBackoff. It fails if there is no such version, or ctx is done.
func (k *Keyring) ensureVersion(ctx context.Context, sb *v1alpha1.Sandbox) error {
	return podBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_, err := k.of(ctx, sb)
		if id, ok := tokenIDOf(sb); ok && err == nil {
			_, err = k.poolToken(ctx, sb, id)
		}
		if err == nil || errors.Is(err, errVersion) {
			return true, err
		}
		return false, nil
	})
}

// of returns the version of a sandbox. One that is not known is read first.
func (k *Keyring) of(ctx context.Context, sb *v1alpha1.Sandbox) (*keys, error) {
	return k.read(ctx, sb, versionOf(sb), v1alpha1.AnnotationRuntimeKeyVersion)
}

// read returns a version, which an annotation of a sandbox names. If it is not known, the key is
// read first. The error is errVersion if there is no such version.
func (k *Keyring) read(ctx context.Context, sb *v1alpha1.Sandbox, version int, annotation string) (*keys, error) {
	if found := k.find(version); found != nil {
		return found, nil
	}
	if err := k.Refresh(ctx); err != nil {
		return nil, err
	}
	if found := k.find(version); found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("sandbox %s/%s has %s %q: %w", sb.Namespace, sb.Name, annotation, sb.Annotations[annotation], errVersion)
}

// find returns a version, or nil if it is not known.
func (k *Keyring) find(version int) *keys {
	all := *k.versions.Load()
	if version == oldest {
		return &all[0]
	}
	for i := range all {
		if all[i].version == version {
			return &all[i]
		}
	}
	return nil
}

// What versionOf returns of a sandbox that names no version. One that was bound before there
// were versions uses the oldest, which is kept for it.
const (
	oldest     = 0
	unreadable = -1
)

// versionOf returns the version of the key that a sandbox was bound with.
func versionOf(sb *v1alpha1.Sandbox) int {
	text, ok := sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion]
	if !ok {
		return oldest
	}
	version, err := strconv.Atoi(text)
	if err != nil || version < 1 {
		return unreadable
	}
	return version
}

// Token returns the access token of the agent-runtime in a sandbox that a claim holds: a
// UUID. It is the same on each server and at each time, so it need not be kept to be
// returned, nor to initialize the runtime once more. A runtime that got one in its pool has
// that.
func (k *Keyring) Token(ctx context.Context, claim types.UID, sb *v1alpha1.Sandbox) (string, error) {
	if id, ok := tokenIDOf(sb); ok {
		return k.poolToken(ctx, sb, id)
	}
	version, err := k.of(ctx, sb)
	if err != nil {
		return "", err
	}
	return version.token(claim, sb.UID), nil
}

func (k *keys) token(claim, sandbox types.UID) string {
	mac := hmac.New(sha256.New, k.tokens)
	// UIDs of the server have one length; what a foreign one has is kept apart by that.
	fmt.Fprintf(mac, "%d:%s%d:%s", len(claim), claim, len(sandbox), sandbox)
	return asUUID(mac.Sum(nil))
}

// asUUID makes a token of a MAC.
func asUUID(sum []byte) string {
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id.String()
}

// errSeal means that a sealed request is none of the claim that it is said to be of.
var errSeal = errors.New("the sealed request of the agent-runtime was not made for this claim, or not by the servers of this store")
