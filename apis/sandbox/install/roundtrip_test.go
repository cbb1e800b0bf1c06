// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestRoundTrip: all kinds come back as they were from JSON and from protobuf.
func TestRoundTrip(t *testing.T) {
	roundtrip.RoundTripTestForAPIGroup(t, installHub, fuzzer.Funcs)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, installHub, fuzzer.Funcs)
}

// TestWireFormat: the bytes of objects with a value in each field are those of testdata, so that no
// field changes its name or its number. UPDATE_COMPATIBILITY_FIXTURE_DATA=true writes them, which is
// right for new fields alone.
func TestWireFormat(t *testing.T) {
	scheme := runtime.NewScheme()
	installHub(scheme)
	options := roundtrip.NewCompatibilityTestOptions(scheme)
	for _, kind := range []string{
		"Sandbox", "SandboxClaim", "SandboxClaimRelease", "SandboxClaimRuntimeAccess", "SandboxSet", "SandboxTemplate",
	} {
		options.Kinds = append(options.Kinds, schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: kind})
	}
	options.Complete(t).Run(t)
}
