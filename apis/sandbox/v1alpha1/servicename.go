// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckServiceName returns an error if service is true and name, the name of a sandbox, is not
// valid for a Service. The Service of a sandbox has the name of the sandbox.
func CheckServiceName(service *bool, name string) error {
	if service == nil || !*service {
		return nil
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%q is not a valid name for a Service: %s", name, strings.Join(problems, ", "))
	}
	return nil
}
