// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidatePlatformKeys(t *testing.T) {
	claim := claim(nil)
	claim.Spec.Labels = map[string]string{"app.kubernetes.io/name": "x", "karpenter.sh/nodepool": "mine"}
	claim.Spec.Annotations = map[string]string{"io.katacontainers.config.x": "y"}
	want := []string{"spec.labels[karpenter.sh/nodepool]: Forbidden: ", "spec.annotations[io.katacontainers.config.x]: Forbidden: "}
	begins(t, ValidateSandboxClaim(claim, DefaultClaimLimits()), want...)

	old := claim.DeepCopy()
	begins(t, ValidateSandboxClaimUpdate(claim, old, DefaultClaimLimits())) // as stored before there was the rule
	old.Spec.Labels = nil
	begins(t, ValidateSandboxClaimUpdate(claim, old, DefaultClaimLimits()), want[0])
}

func begins(t *testing.T, got field.ErrorList, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %v, want %q", got, want)
	}
	for i, err := range got {
		if !strings.HasPrefix(err.Error(), want[i]) {
			t.Errorf("got %q, want %q", err, want[i])
		}
	}
}

func TestValidatePodMetadataPolicy(t *testing.T) {
	many := make([]string, maxPodMetadataKeys+1)
	tests := map[string]struct {
		policy v1alpha1.PodMetadataPolicy
		want   []string
	}{
		"none": {},
		"keys": {policy: v1alpha1.PodMetadataPolicy{
			Labels: []string{"team", "example.com/*", "team-*", "*", "app.kubernetes.io/*"}, Annotations: []string{"example.com/note"},
		}},
		"what is no key": {
			policy: v1alpha1.PodMetadataPolicy{Labels: []string{"", "a*b", "a b"}, Annotations: []string{"/x", "a/b/c", "**"}},
			want: []string{
				"labels[0]: Invalid value: \"\"", "labels[0]: Invalid value: \"\"", "labels[1]: Invalid value: \"a*b\"", "labels[2]: Invalid value: \"a b\"",
				"annotations[0]: Invalid value: \"/x\"", "annotations[1]: Invalid value: \"a/b/c\"", "annotations[2]: Invalid value: \"**\"",
			},
		},
		"what platforms act on": {
			policy: v1alpha1.PodMetadataPolicy{Labels: []string{"istio.io/rev", "sidecar.istio.io/*"}, Annotations: []string{"io.katacontainers.*"}},
			want:   []string{"labels[0]: Invalid", "labels[1]: Invalid", "annotations[0]: Invalid"},
		},
		"too many": {policy: v1alpha1.PodMetadataPolicy{Annotations: many}, want: []string{"annotations: Too many"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, w := range tt.want {
				want = append(want, "spec.podMetadataPolicy."+w)
			}
			set, before := set(t, nil), template(t, nil)
			set.ResourceVersion, before.ResourceVersion = "1", "1"
			template := before.DeepCopy()
			set.Spec.PodMetadataPolicy, template.Spec.PodMetadataPolicy = &tt.policy, &tt.policy
			begins(t, ValidateSandboxSet(set), want...)
			begins(t, ValidateSandboxSetUpdate(set, set.DeepCopy()))
			begins(t, ValidateSandboxTemplate(template), want...)
			begins(t, ValidateSandboxTemplateUpdate(template, before), want...)
			begins(t, ValidateSandboxTemplateUpdate(template, template.DeepCopy()))
		})
	}
}

func TestValidateInjectionContainers(t *testing.T) {
	for containers, valid := range map[v1alpha1.InjectionContainers]bool{"": true, "All": true, "First": true, "Second": false} {
		template := template(t, nil)
		template.Spec.EnvVarsInjectionContainers = containers
		if errs := ValidateSandboxTemplate(template); (len(errs) == 0) != valid {
			t.Errorf("%q: %v", containers, errs)
		}
	}
}
