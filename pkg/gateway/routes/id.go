// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claimName is what the gateway names claims.
var claimName = regexp.MustCompile("^e[a-z2-7]{13}$")

// Split returns the namespace and the name of the claim that an id consists of. ok is false
// if no sandbox can have this id.
func Split(id string) (namespace, claim string, ok bool) {
	namespace, claim, ok = v1alpha1.SplitE2BSandboxID(id)
	if !ok || len(namespace) > v1alpha1.MaxE2BNamespace || !claimName.MatchString(claim) ||
		len(validation.IsDNS1123Label(namespace)) != 0 {
		return "", "", false
	}
	return namespace, claim, true
}
