// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/base32"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// APIPrefix is the path below which OpenKruise Agents serves the E2B API once more. Other paths below
// /kruise/ name a sandbox.
const APIPrefix = "/kruise/api"

const (
	// claimNamePrefix begins the name of each claim, which must begin with a letter.
	claimNamePrefix = 'e'
	// claimNameLength is the length of the name of a claim: the prefix and 65 bits in base 32.
	claimNameLength = 14
)

// ClaimName returns the name of a claim that follows from at least 9 bytes.
func ClaimName(bits []byte) string {
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(bits)
	return string(claimNamePrefix) + strings.ToLower(text[:claimNameLength-1])
}

// IsClaimName reports whether a name could be one of ClaimName.
func IsClaimName(name string) bool {
	if len(name) != claimNameLength || name[0] != claimNamePrefix {
		return false
	}
	for _, b := range []byte(name[1:]) {
		if (b < 'a' || b > 'z') && (b < '2' || b > '7') {
			return false
		}
	}
	return true
}

// ParseSandboxID returns the namespace and the name of the claim that an id of the E2B API consists of.
// ok is false if no sandbox can have this id.
func ParseSandboxID(id string) (namespace, claim string, ok bool) {
	namespace, claim, ok = v1alpha1.SplitE2BSandboxID(id)
	if !ok || len(namespace) > v1alpha1.MaxE2BNamespace || !IsClaimName(claim) ||
		len(validation.IsDNS1123Label(namespace)) != 0 {
		return "", "", false
	}
	return namespace, claim, true
}
