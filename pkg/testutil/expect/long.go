// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"os"
	"testing"
)

// LongVariable is the variable of the environment that asks for the long form of the tests:
// "make test-long" sets it. It has more clients, more objects, and what repeats with other
// versions or layouts what a test of the short form shows.
const LongVariable = "SANDLOT_TEST_LONG"

func isLong() bool { return os.Getenv(LongVariable) != "" }

// Many returns how many of something a test takes: few, or many in the long form.
func Many[T any](few, many T) T {
	if isLong() {
		return many
	}
	return few
}

// LongOnly leaves a test to the long form.
func LongOnly(t *testing.T) {
	t.Helper()
	if !isLong() {
		t.Skipf("is part of the long form, with %s=1", LongVariable)
	}
}
