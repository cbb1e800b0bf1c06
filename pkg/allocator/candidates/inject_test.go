// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestRefusalIsShort(t *testing.T) {
	var errs field.ErrorList
	for i := range 5 {
		errs = append(errs, field.NotFound(envPath.Index(i).Child("containerName"), "x"))
	}
	want := `environment variable injection rejected: spec.env[0].containerName: Not found: "x"; ` +
		`spec.env[1].containerName: Not found: "x"; spec.env[2].containerName: Not found: "x"; and 2 more`
	if got := refusal(v1alpha1.ReasonEnvVarsInjectionRejected, errs).Error(); got != want {
		t.Errorf("says %q", got)
	}
}
