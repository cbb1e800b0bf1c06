// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateClaimMetadata(t *testing.T) {
	reserved := "Forbidden: "
	tests := map[string]struct {
		labels, annotations map[string]string
		want                []string
	}{
		"plain": {
			labels:      map[string]string{"team": "ml", "example.com/run": "7"},
			annotations: map[string]string{"example.com/note": strings.Repeat("long ", 1000)},
		},
		"keys of the contract that are for users": {
			labels:      map[string]string{v1alpha1.LabelAllowInternetAccess: "false"},
			annotations: map[string]string{v1alpha1.AnnotationCleanupEnabled: "true", "e2b.agents.kruise.io/mine": "x"},
		},
		"syntax": {
			labels:      map[string]string{"a": "no spaces here"},
			annotations: map[string]string{"two/slashes/here": "x"},
			want: []string{
				"spec.labels: Invalid value: \"no spaces here\": ",
				"spec.annotations: Invalid value: \"two/slashes/here\": ",
			},
		},
		"reserved labels": {
			labels: map[string]string{
				"agents.kruise.io/claim-name":      "other",
				"agents.kruise.io/sandbox-claimed": "false",
				"e2b.agents.kruise.io/anything":    "x",
				"sandlot.io/claimed-by":            "me",
			},
			want: []string{
				"spec.labels[agents.kruise.io/claim-name]: " + reserved,
				"spec.labels[agents.kruise.io/sandbox-claimed]: " + reserved,
				"spec.labels[e2b.agents.kruise.io/anything]: " + reserved,
				"spec.labels[sandlot.io/claimed-by]: " + reserved,
			},
		},
		"reserved annotations": {
			annotations: map[string]string{
				"agents.kruise.io/lock":         "x",
				"agents.kruise.io/owner":        "x",
				"agents.kruise.io/sandbox-id":   "x",
				"e2b.agents.kruise.io/envd-url": "x",
				"sandlot.io/anything-to-come":   "x",
			},
			want: []string{
				"spec.annotations[agents.kruise.io/lock]: Forbidden: agents.kruise.io/lock is reserved: the system writes it itself",
				"spec.annotations[agents.kruise.io/owner]: " + reserved,
				"spec.annotations[agents.kruise.io/sandbox-id]: " + reserved,
				"spec.annotations[e2b.agents.kruise.io/envd-url]: " + reserved,
				"spec.annotations[sandlot.io/anything-to-come]: " + reserved,
			},
		},
		"a request to recycle": {
			annotations: map[string]string{v1alpha1.AnnotationCleanup: "true"},
			want: []string{
				"spec.annotations[agents.kruise.io/cleanup]: Forbidden: agents.kruise.io/cleanup is reserved for Sandboxes: " +
					"annotate the Sandbox that is to be recycled, or release the claim",
			},
		},
		"too much": {
			annotations: map[string]string{"a": strings.Repeat("x", 2<<20)},
			want:        []string{"spec.annotations: Too long: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandboxClaim(claim(func(c *v1alpha1.SandboxClaim) {
				c.Spec.Labels, c.Spec.Annotations = tc.labels, tc.annotations
			}), DefaultClaimLimits()), tc.want)
		})
	}
}

// A claim that asks to recycle its sandboxes already can be edited, but none begins to.
func TestCleanupOfAStoredClaim(t *testing.T) {
	asks := claim(func(c *v1alpha1.SandboxClaim) {
		c.ResourceVersion, c.Spec.Annotations = "1", map[string]string{v1alpha1.AnnotationCleanup: "true"}
	})
	edited := asks.DeepCopy()
	edited.Spec.Annotations["example.com/note"] = "x"
	expect(t, ValidateSandboxClaimUpdate(edited, asks, DefaultClaimLimits()), nil)
	plain := claim(func(c *v1alpha1.SandboxClaim) { c.ResourceVersion = "1" })
	expect(t, ValidateSandboxClaimUpdate(asks, plain, DefaultClaimLimits()),
		[]string{"spec.annotations[agents.kruise.io/cleanup]: Forbidden: "})
}

// One error, and not one for every key besides.
func TestValidateClaimLabelsTooMuch(t *testing.T) {
	labels := map[string]string{}
	for i := range 5000 {
		labels[fmt.Sprintf("bad key %d", i)] = longName[:60]
	}
	expect(t, ValidateSandboxClaim(claim(func(c *v1alpha1.SandboxClaim) { c.Spec.Labels = labels }), DefaultClaimLimits()),
		[]string{"spec.labels: Too long: "})
}
