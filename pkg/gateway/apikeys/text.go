// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
)

const (
	prefix      = "e2b_"
	idDigits    = 16
	valueDigits = 64
	saltBytes   = 16
)

// decoy is what a text is compared with that is no key, so that it takes the time of one.
var decoy = Stored{Salt: make([]byte, saltBytes), Hash: make([]byte, sha256.Size)}

// decoyText is compared instead of a text that may be of any length.
var decoyText = prefix + strings.Repeat("0", valueDigits)

// newText makes a key up.
func newText() (id, text string) {
	random := make([]byte, valueDigits/2)
	_, _ = rand.Read(random) // it never fails
	value := hex.EncodeToString(random)
	return value[:idDigits], prefix + value
}

// idOf returns the id in the text of a key. ok is false if it is no such text.
func idOf(text string) (id string, ok bool) {
	value, found := strings.CutPrefix(text, prefix)
	if !found || len(value) != valueDigits || !isHex(value) {
		return "", false
	}
	return value[:idDigits], true
}

// IsID reports whether a text could be the id of a key.
func IsID(text string) bool { return len(text) == idDigits && isHex(text) }

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }

// maskOf is what may be shown of the key of an id.
func maskOf(id string) Mask {
	return Mask{Prefix: prefix, ValueLength: valueDigits, ValuePrefix: id}
}

// newSalt returns the salt of a new key.
func newSalt() []byte {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // it never fails
	return salt
}

// hash is what is stored of the text of a key.
func hash(salt []byte, text string) []byte {
	sum := sha256.New()
	_, _ = sum.Write(salt) // a hash never fails
	_, _ = sum.Write([]byte(text))
	return sum.Sum(nil)
}

// matches reports whether a text is that of the key. It takes the same time either way.
func (s *Stored) matches(text string) bool {
	return subtle.ConstantTimeCompare(hash(s.Salt, text), s.Hash) == 1
}
