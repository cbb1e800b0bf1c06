// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
)

// saltBytes is the length of a salt.
const saltBytes = 16

// decoy is compared with texts that are not keys, so that these take the same time as keys.
var decoy = Key{Salt: make([]byte, saltBytes), Hash: make([]byte, sha256.Size)}

// newSalt returns the salt of a new key.
func newSalt() []byte {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // it never fails
	return salt
}

// hash returns the salted hash of the text of a key.
func hash(salt []byte, text string) []byte {
	sum := sha256.New()
	_, _ = sum.Write(salt) // a hash never fails
	_, _ = sum.Write([]byte(text))
	return sum.Sum(nil)
}

// matches reports whether a text is that of the key. It takes the same time either way.
func (s *Key) matches(text string) bool {
	return subtle.ConstantTimeCompare(hash(s.Salt, text), s.Hash) == 1
}
