// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// TemplateLabel is the value of LabelSandboxTemplate for the template of a
// name: the name, or where it is too long for a label its beginning and a hash.
func TemplateLabel(name string) string { return fit(name, validation.LabelValueMaxLength) }

// NetworkPolicyName is the name of the NetworkPolicy of a SandboxTemplate.
func NetworkPolicyName(template string) string {
	const suffix = "-network-policy"
	return fit(template, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// hashLength is how much of a hash stands for what was cut off: 48 bits.
const hashLength = 12

// fit cuts the name of an object that is longer than limit, and makes it end in a
// hash of the whole name instead: two long names differ at their ends as a rule.
func fit(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	head := strings.TrimRight(name[:limit-hashLength-1], "-.")
	return head + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
