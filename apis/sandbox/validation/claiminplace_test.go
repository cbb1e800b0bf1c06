// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateInplaceUpdate(t *testing.T) {
	list := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount)}
	}
	type (
		options   = v1alpha1.SandboxClaimInplaceUpdateOptions
		resources = v1alpha1.SandboxClaimInplaceUpdateResources
	)
	tests := map[string]struct {
		update options
		want   []string
	}{
		"image":             {update: options{Image: "registry:5000/a/b:1@sha256:0"}},
		"a long image":      {update: options{Image: strings.Repeat("a", 1024)}},
		"cpu":               {update: options{Resources: &resources{Requests: list("cpu", "1m"), Limits: list("cpu", "1m")}}},
		"memory is ignored": {update: options{Resources: &resources{Limits: list("memory", "-1")}}},
		"neither":           {want: []string{"spec.inplaceUpdate: Required value: image or resources"}},
		"empty resources":   {update: options{Resources: &resources{Limits: corev1.ResourceList{}}}, want: []string{"spec.inplaceUpdate: Required value: image or resources"}},
		"spaces":            {update: options{Image: " "}, want: []string{`spec.inplaceUpdate.image: Invalid value: " ": must not have leading or trailing whitespace`}},
		"a newline":         {update: options{Image: "a\n"}, want: []string{`spec.inplaceUpdate.image: Invalid value: "a\n": must not have leading or trailing whitespace`}},
		"too long":          {update: options{Image: strings.Repeat("a", 1025)}, want: []string{"spec.inplaceUpdate.image: Too long: may not be more than 1024 bytes"}},
		"no cpu":            {update: options{Resources: &resources{Requests: list("cpu", "0")}}, want: []string{`spec.inplaceUpdate.resources.requests[cpu]: Invalid value: "0": must be greater than 0`}},
		"less than none": {
			update: options{Image: "a", Resources: &resources{Requests: list("cpu", "1"), Limits: list("cpu", "-1")}},
			want:   []string{`spec.inplaceUpdate.resources.limits[cpu]: Invalid value: "-1": must be greater than 0`},
		},
		"more than the limit": {
			update: options{Resources: &resources{Requests: list("cpu", "2"), Limits: list("cpu", "1")}},
			want:   []string{`spec.inplaceUpdate.resources.requests[cpu]: Invalid value: "2": must not be more than the cpu limit, 1`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := claim(func(c *v1alpha1.SandboxClaim) { c.Spec.InplaceUpdate = &tc.update })
			expect(t, ValidateSandboxClaim(c, DefaultClaimLimits()), tc.want)
			expect(t, ValidateSandboxClaimUpdate(c, claim(nil), DefaultClaimLimits()), tc.want)
			// One that is stored already stays editable otherwise.
			expect(t, ValidateSandboxClaimUpdate(c, c.DeepCopy(), DefaultClaimLimits()), nil)
			expect(t, ValidateSandboxClaimUpdate(claim(nil), c, DefaultClaimLimits()), nil)
		})
	}
}
