// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"

	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
)

func TestRoundTrip(t *testing.T) {
	roundtrip.RoundTripTestForAPIGroup(t, installHub, fuzzer.Funcs)
}
