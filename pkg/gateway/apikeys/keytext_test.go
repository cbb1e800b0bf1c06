// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"bytes"
	"strings"
	"testing"
)

func TestIDOf(t *testing.T) {
	id, text := newText()
	if got, ok := idOf(text); !ok || got != id || !IsID(id) || len(text) != 68 {
		t.Errorf("id of %d characters is %q, %v, want %q", len(text), got, ok, id)
	}
	if _, again := newText(); again == text {
		t.Error("the same key twice")
	}
	digits := strings.Repeat("a", valueDigits)
	for name, bad := range map[string]string{
		"nothing":         "",
		"the prefix only": prefix,
		"no prefix":       digits,
		"another prefix":  "sk_" + digits,
		"the prefix up":   "E2B_" + digits,
		"upper case":      prefix + strings.ToUpper(digits),
		"one upper case":  prefix + "A" + digits[1:],
		"too short":       prefix + digits[1:],
		"too long":        prefix + digits + "a",
		"a mebibyte":      prefix + strings.Repeat("a", 1<<20),
		"no digit":        prefix + "g" + digits[1:],
		"a space":         prefix + digits[1:] + " ",
		"a line":          prefix + digits + "\n",
		"a null":          prefix + digits[1:] + "\x00",
		"other digits":    prefix + strings.Repeat("\u0661", valueDigits/2),
		"a path":          prefix + "../../secrets/x" + digits[15:],
		"both":            text + "," + text,
		"OpenKruise's":    prefix + "6f6b6167" + "01" + digits[10:] + "00",
	} {
		t.Run(name, func(t *testing.T) {
			if id, ok := idOf(bad); ok || id != "" {
				t.Errorf("id is %q", id)
			}
		})
	}
}

func TestHash(t *testing.T) {
	_, text := newText()
	_, other := newText()
	a, b := Key{Salt: newSalt()}, Key{Salt: newSalt()}
	a.Hash, b.Hash = hash(a.Salt, text), hash(b.Salt, text)
	if !a.matches(text) || !b.matches(text) || bytes.Equal(a.Hash, b.Hash) {
		t.Error("the same key does not match two salts, or has one hash under both")
	}
	for _, wrong := range []string{other, "", text + " ", text[:len(text)-1], strings.ToUpper(text)} {
		if a.matches(wrong) {
			t.Errorf("%d characters match", len(wrong))
		}
	}
	if decoy.matches(decoyText) || decoy.matches(text) {
		t.Error("the decoy matches")
	}
	if (&Key{}).matches(text) {
		t.Error("nothing matches")
	}
}

func TestMask(t *testing.T) {
	id, text := newText()
	mask := maskOf(id)
	if len(mask.Prefix)+mask.ValueLength != len(text) || !strings.HasPrefix(text, mask.Prefix+mask.ValuePrefix) {
		t.Errorf("mask is %+v", mask)
	}
}
