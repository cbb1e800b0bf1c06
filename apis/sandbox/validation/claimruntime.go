// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func validateClaimRuntime(spec, old *v1alpha1.SandboxClaimSpec, path *field.Path) field.ErrorList {
	return nil
}
