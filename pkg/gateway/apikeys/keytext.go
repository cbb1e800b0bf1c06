// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

const (
	prefix      = "e2b_"
	idDigits    = 16
	valueDigits = 64
)

// decoyText is compared instead of a text that may be of any length.
var decoyText = prefix + strings.Repeat("0", valueDigits)

// newText returns the text of a new random key, and its id.
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

// maskOf returns what may be shown of the key of an id.
func maskOf(id string) Mask {
	return Mask{Prefix: prefix, ValueLength: valueDigits, ValuePrefix: id}
}
