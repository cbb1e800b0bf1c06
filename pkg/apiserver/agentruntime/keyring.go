// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"k8s.io/apimachinery/pkg/types"
)

// keyBytes is how long keys are.
const keyBytes = 32

// What the keys that are derived from the one that is stored are for. Other words make
// other keys.
const (
	forTokens = "sandlot.io access tokens v1"
	forSeals  = "sandlot.io sealed requests v1"
)

// Keyring has what tokens and seals are made with. All servers of a store have the same.
type Keyring struct {
	tokens, seals []byte
}

// NewKeyring returns the keyring of a secret of 32 random bytes.
func NewKeyring(secret []byte) (*Keyring, error) {
	if len(secret) != keyBytes {
		return nil, fmt.Errorf("the key for agent-runtimes has %d bytes in place of %d", len(secret), keyBytes)
	}
	tokens, err := hkdf.Key(sha256.New, secret, nil, forTokens, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	seals, err := hkdf.Key(sha256.New, secret, nil, forSeals, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return &Keyring{tokens: tokens, seals: seals}, nil
}

// newSecret returns a secret for a keyring.
func newSecret() []byte {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails
	return secret
}

// Token returns the access token of the agent-runtime in a sandbox that a claim holds: a
// UUID. It is the same on each server and at each time, so it need not be kept to be
// told, nor to initialize the runtime once more.
func (k *Keyring) Token(claim, sandbox types.UID) string {
	mac := hmac.New(sha256.New, k.tokens)
	// UIDs of the server have one length; what a foreign one has is kept apart by that.
	fmt.Fprintf(mac, "%d:%s%d:%s", len(claim), claim, len(sandbox), sandbox)
	id := uuid.UUID(mac.Sum(nil)[:16])
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id.String()
}

// errSeal means that a sealed request is none of the claim that it is said to be of.
var errSeal = errors.New("the sealed request of the agent-runtime was not made for this claim, or not by the servers of this store")
