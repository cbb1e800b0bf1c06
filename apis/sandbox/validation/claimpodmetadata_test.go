// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateAdditionalPodMetadata(t *testing.T) {
	restricted := func(domain string) string {
		return "Forbidden: keys of " + domain + " are not for claims: they belong into the pod template"
	}
	labels, annotations := "spec.additionalPodMetadata.labels", "spec.additionalPodMetadata.annotations"
	many := map[string]string{}
	for i := range 60 {
		many[fmt.Sprintf("key-%d", i)] = "x"
	}
	tests := map[string]struct {
		labels, annotations map[string]string
		spec                func(*v1alpha1.SandboxClaimSpec)
		want                []string
	}{
		"empty": {},
		"plain": {
			labels:      map[string]string{"tier": "gold", "example.com/run": "7", "kubernetes.io.example.com/x": "y", "mykubernetes.io/x": "y"},
			annotations: map[string]string{"example.com/note": strings.Repeat("long ", 1000), "prometheus.io/scrape": "true"},
		},
		"a key of the contract that labels may bring": {labels: map[string]string{v1alpha1.LabelAllowInternetAccess: "false"}},
		"the same as labels and annotations say": {
			labels: map[string]string{"team": "rl"}, annotations: map[string]string{"note": "a"},
			spec: func(s *v1alpha1.SandboxClaimSpec) {
				s.Labels, s.Annotations = map[string]string{"team": "rl"}, map[string]string{"note": "a"}
			},
		},
		"another value than labels and annotations": {
			labels: map[string]string{"team": "ml"}, annotations: map[string]string{"note": "b"},
			spec: func(s *v1alpha1.SandboxClaimSpec) {
				s.Labels, s.Annotations = map[string]string{"team": "rl"}, map[string]string{"note": "a"}
			},
			want: []string{
				labels + `[team]: Invalid value: "ml": spec.labels has another value for it, and the pod gets both`,
				annotations + `[note]: Invalid value: "b": spec.annotations has another value for it, and the pod gets both`,
			},
		},
		"syntax": {
			labels:      map[string]string{"a": "no spaces here"},
			annotations: map[string]string{"two/slashes/here": "x"},
			want: []string{
				labels + ": Invalid value: \"no spaces here\": ",
				annotations + ": Invalid value: \"two/slashes/here\": ",
			},
		},
		"length": {
			labels: map[string]string{"b": strings.Repeat("x", 64)},
			want:   []string{labels + ": Invalid value: \"" + strings.Repeat("x", 64)},
		},
		"restricted domains": {
			labels: map[string]string{
				"kubernetes.io/hostname": "x", "app.kubernetes.io/name": "x", "k8s.io/x": "x", "deep.er.k8s.io/x": "x",
				"agents.x-k8s.io/claim-uid": "x", "extensions.agents.x-k8s.io/x": "x",
			},
			annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "Container.Apparmor.Security.Beta.KUBERNETES.io/main": "x"},
			want: []string{
				labels + "[agents.x-k8s.io/claim-uid]: " + restricted("agents.x-k8s.io"),
				labels + "[app.kubernetes.io/name]: " + restricted("kubernetes.io"),
				labels + "[deep.er.k8s.io/x]: " + restricted("k8s.io"),
				labels + "[extensions.agents.x-k8s.io/x]: " + restricted("agents.x-k8s.io"),
				labels + "[k8s.io/x]: " + restricted("k8s.io"),
				labels + "[kubernetes.io/hostname]: " + restricted("kubernetes.io"),
				annotations + "[Container.Apparmor.Security.Beta.KUBERNETES.io/main]: " + restricted("kubernetes.io"),
				annotations + "[cluster-autoscaler.kubernetes.io/safe-to-evict]: " + restricted("kubernetes.io"),
			},
		},
		"what the system writes": {
			labels: map[string]string{
				v1alpha1.LabelOwner: "x", v1alpha1.LabelPodTemplateHash: "x", "sandlot.io/x": "x", "e2b.agents.kruise.io/x": "x",
			},
			annotations: map[string]string{
				v1alpha1.AnnotationTemplateMetadata: "x", v1alpha1.AnnotationCreatedBy: "x", v1alpha1.AnnotationCleanupEnabled: "true",
				v1alpha1.AnnotationCleanup: "true",
			},
			want: []string{
				labels + "[agents.kruise.io/owner]: Forbidden: agents.kruise.io/owner is reserved: the system writes it itself",
				labels + "[e2b.agents.kruise.io/x]: Forbidden: e2b.agents.kruise.io/x is reserved: ",
				labels + "[pod-template-hash]: Forbidden: pod-template-hash is reserved: ",
				labels + "[sandlot.io/x]: Forbidden: sandlot.io/x is reserved: ",
				annotations + "[agents.kruise.io/cleanup]: Forbidden: agents.kruise.io/cleanup is reserved for Sandboxes: annotate the Sandbox",
				annotations + "[agents.kruise.io/cleanup-enabled]: Forbidden: annotations of agents.kruise.io are for Sandboxes: put it into spec.annotations",
				annotations + "[agents.kruise.io/created-by]: Forbidden: agents.kruise.io/created-by is reserved: ",
				annotations + "[sandlot.io/template-metadata]: Forbidden: sandlot.io/template-metadata is reserved: ",
			},
		},
		"what platforms act on": {
			labels:      map[string]string{"azure.workload.identity/use": "true"},
			annotations: map[string]string{"sidecar.istio.io/inject": "true", "io.kubernetes.cri-o.userns-mode": "x"},
			want: []string{
				labels + "[azure.workload.identity/use]: Forbidden: azure.workload.identity/use means something to the platform that runs pods",
				annotations + "[io.kubernetes.cri-o.userns-mode]: Forbidden: io.kubernetes.cri-o.userns-mode means something to the platform",
				annotations + "[sidecar.istio.io/inject]: Forbidden: sidecar.istio.io/inject means something to the platform",
			},
		},
		"too many together with labels": {
			labels: many, spec: func(s *v1alpha1.SandboxClaimSpec) {
				s.Labels = map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""}
			},
			want: []string{"spec.additionalPodMetadata: Too many: 65: labels, annotations and additionalPodMetadata together must have at most 64 keys"},
		},
		"too much": {
			annotations: map[string]string{"kubernetes.io/bad": strings.Repeat("x", 8<<10)},
			want:        []string{"spec.additionalPodMetadata: Too long: "},
		},
		"too much for all sandboxes": {
			annotations: map[string]string{"a": strings.Repeat("x", 7<<10)},
			spec:        func(s *v1alpha1.SandboxClaimSpec) { s.Replicas = ptr.To(int32(10000)) },
			want:        []string{"spec.replicas: Invalid value: 10000: labels, annotations, additionalPodMetadata, env, volumeClaimTemplates, envVars and dynamicVolumesMount are 7176 bytes"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			made := claim(func(c *v1alpha1.SandboxClaim) {
				c.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Labels: tc.labels, Annotations: tc.annotations}
				if tc.spec != nil {
					tc.spec(&c.Spec)
				}
			})
			expect(t, ValidateSandboxClaim(made, DefaultClaimLimits()), tc.want)
			if made.Spec.Replicas != nil && *made.Spec.Replicas == 10000 {
				return
			}
			expect(t, ValidateSandboxClaimUpdate(made, claim(nil), DefaultClaimLimits()), tc.want)
		})
	}
}

// What is stored, from before there was a rule, may stay.
func TestAdditionalPodMetadataRatchet(t *testing.T) {
	with := func(labels map[string]string) *v1alpha1.SandboxClaim {
		return claim(func(c *v1alpha1.SandboxClaim) { c.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Labels: labels} })
	}
	old := with(map[string]string{"sidecar.istio.io/inject": "true", "k8s.io/x": "a"})
	expect(t, ValidateSandboxClaimUpdate(with(map[string]string{"sidecar.istio.io/inject": "true", "mine": "x"}), old, DefaultClaimLimits()), nil)
	expect(t, ValidateSandboxClaimUpdate(with(map[string]string{"k8s.io/x": "b"}), old, DefaultClaimLimits()),
		[]string{"spec.additionalPodMetadata.labels[k8s.io/x]: Forbidden: "})
}
