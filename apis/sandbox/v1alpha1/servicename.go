// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckServiceName returns an error if service asks for a Service of a name that no Service
// can have. The Service of a sandbox has the sandbox's name.
func CheckServiceName(service *bool, name string) error {
	if service == nil || !*service {
		return nil
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("no Service can have the name %q: %s", name, strings.Join(problems, ", "))
	}
	return nil
}
