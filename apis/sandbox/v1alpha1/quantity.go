// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"strings"
)

// maxExponentDigits is how many digits the exponent of a quantity may have.
const maxExponentDigits = 2

// ErrQuantityExponent means that the exponent of a quantity is too long.
var ErrQuantityExponent = errors.New("must have an exponent of at most two digits")

// maxQuantityLength is how many bytes a quantity may have. The time to parse one grows with the
// square of its length.
const maxQuantityLength = 128

// ErrQuantityLength means that a quantity is too long.
var ErrQuantityLength = errors.New("must have at most 128 characters")

// CheckQuantity returns ErrQuantityLength for a text that is too long, and ErrQuantityExponent for
// one such as 1e5000000, which must not be parsed as a resource.Quantity. Kubernetes does not bound
// exponents, and parsing or comparing such a quantity computes a power of ten with as many digits as
// the exponent says. The text need not be a quantity.
func CheckQuantity(text string) error {
	if len(text) > maxQuantityLength {
		return ErrQuantityLength
	}
	at := strings.IndexAny(text, "eE")
	if at < 0 {
		return nil
	}
	exponent := strings.TrimLeft(text[at+1:], "+-")
	if digits := len(exponent) - len(strings.TrimLeft(exponent, "0123456789")); digits > maxExponentDigits {
		return ErrQuantityExponent
	}
	return nil
}
