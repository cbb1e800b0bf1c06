// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// variables are n different ones.
func variables(n int) []v1alpha1.SandboxClaimEnvVar {
	all := make([]v1alpha1.SandboxClaimEnvVar, n)
	for i := range all {
		all[i].Name = fmt.Sprintf("V%d", i)
	}
	return all
}

func TestValidateInjection(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaimSpec)
		want   []string
	}{
		"variables": {change: func(s *v1alpha1.SandboxClaimSpec) {
			s.Env = []v1alpha1.SandboxClaimEnvVar{
				{Name: "A", Value: "hidden"}, {Name: "A", Value: "", ContainerName: "main"}, {Name: "dots.and-dashes 2"},
			}
		}},
		"names": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.Env = []v1alpha1.SandboxClaimEnvVar{
					{Value: "hidden"}, {Name: "A=B", Value: "hidden"}, {Name: "C", ContainerName: "Not_One"}, {Name: "D"}, {Name: "D", Value: "hidden"},
				}
			},
			want: []string{
				"spec.env[0].name: Required value",
				"spec.env[1].name: Invalid value: \"A=B\": ",
				"spec.env[2].containerName: Invalid value: \"Not_One\": ",
				"spec.env[4].name: Duplicate value: \"D\"",
			},
		},
		"as many variables as there may be": {change: func(s *v1alpha1.SandboxClaimSpec) {
			s.Env = variables(maxClaimEnv)
		}},
		"too many variables": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.Env = variables(maxClaimEnv + 1) },
			want:   []string{"spec.env: Too many: 257: must have at most 256 items"},
		},
		"too much": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: strings.Repeat("x", maxClaimEnvBytes)}}
			},
			want: []string{"spec.env: Too long: may not be more than 32768 bytes"},
		},
		"all that fits": {change: func(s *v1alpha1.SandboxClaimSpec) {
			s.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: strings.Repeat("x", maxClaimEnvBytes-1)}}
		}},
		"volume": {change: func(s *v1alpha1.SandboxClaimSpec) {
			s.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(dataClaim)}
		}},
		"bad volumes": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(dataClaim), *rawJSON(dataClaim), *rawJSON(`{}`)}
			},
			want: []string{
				"spec.volumeClaimTemplates[1].metadata.name: Duplicate value: \"data\"",
				"spec.volumeClaimTemplates[2].metadata.name: Required value",
				"spec.volumeClaimTemplates[2].spec.resources.requests[storage]: Required value",
			},
		},
		"too many volumes": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.VolumeClaimTemplates = make([]runtime.RawExtension, 17) },
			want:   []string{"spec.volumeClaimTemplates: Too many: 17: must have at most 16 items"},
		},
		"from warm pools": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.Env, s.WarmPool = variables(1), v1alpha1.WarmPoolDefault },
			want:   []string{"spec.warmPool: Invalid value: \"default\": must be none, or left out, with env or volumeClaimTemplates"},
		},
		"from one pool": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.VolumeClaimTemplates, s.WarmPool = []runtime.RawExtension{*rawJSON(dataClaim)}, "small"
			},
			want: []string{"spec.warmPool: Invalid value: \"small\": must be none"},
		},
		"from nowhere": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.Env, s.CreateOnNoStock = variables(1), ptr.To(false) },
			want:   []string{"spec.createOnNoStock: Invalid value: false: must be true with warmPool none"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := claim(func(c *v1alpha1.SandboxClaim) {
				c.Spec.WarmPool = v1alpha1.WarmPoolNone
				tc.change(&c.Spec)
			})
			expect(t, ValidateSandboxClaim(c, DefaultClaimLimits()), tc.want)
			for _, err := range ValidateSandboxClaim(c, DefaultClaimLimits()) {
				if strings.Contains(err.Error(), "hidden") {
					t.Errorf("a value is told: %v", err)
				}
			}
		})
	}
}

func TestInjectionIsImmutable(t *testing.T) {
	with := func(value, volume string) *v1alpha1.SandboxClaim {
		return claim(func(c *v1alpha1.SandboxClaim) {
			c.Spec.WarmPool = v1alpha1.WarmPoolNone
			if value != "" {
				c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: value}}
			}
			if volume != "" {
				c.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(volume)}
			}
		})
	}
	const env, volumes = "spec.env: Forbidden: is immutable", "spec.volumeClaimTemplates: Forbidden: is immutable"
	otherSize := strings.Replace(dataClaim, "1Gi", "2Gi", 1)
	tests := map[string]struct {
		old, changed *v1alpha1.SandboxClaim
		want         []string
	}{
		"the same":  {with("a", dataClaim), with("a", dataClaim), nil},
		"none":      {with("", ""), with("", ""), nil},
		"added":     {with("", ""), with("a", dataClaim), []string{env, volumes}},
		"removed":   {with("a", dataClaim), with("", ""), []string{env, volumes}},
		"changed":   {with("a", dataClaim), with("b", otherSize), []string{env, volumes}},
		"reordered": {with("a", `{"metadata":{"name":"d"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`), with("a", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}},"metadata":{"name":"d"}}`), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandboxClaimUpdate(tc.changed, tc.old, DefaultClaimLimits()), tc.want)
		})
	}
}
