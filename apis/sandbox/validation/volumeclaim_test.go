// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const dataClaim = `{"metadata":{"name":"data"},"spec":{"future":{"x":1},"resources":{"requests":{"storage":"1Gi"}}}}`

func claimTemplates(texts ...string) []runtime.RawExtension {
	claims := make([]runtime.RawExtension, len(texts))
	for i, text := range texts {
		claims[i] = *rawJSON(text)
	}
	return claims
}

func TestValidateVolumeClaimTemplates(t *testing.T) {
	const at = "spec.volumeClaimTemplates"
	tests := map[string]struct {
		claims []runtime.RawExtension
		want   []string
	}{
		"none":         {},
		"one":          {claims: claimTemplates(dataClaim)},
		"no object":    {claims: claimTemplates(`[]`), want: []string{at + "[0]: Invalid value: "}},
		"a wrong type": {claims: claimTemplates(`{"metadata":{"name":1}}`), want: []string{at + "[0].metadata.name: Invalid value: "}},
		"no name": {
			claims: claimTemplates(strings.Replace(dataClaim, `"data"`, `""`, 1)),
			want:   []string{at + "[0].metadata.name: Required value"},
		},
		"no label": {
			claims: claimTemplates(strings.Replace(dataClaim, `"data"`, `"a.b"`, 1)),
			want:   []string{at + "[0].metadata.name: Invalid value: \"a.b\""},
		},
		"twice": {
			claims: claimTemplates(dataClaim, dataClaim),
			want:   []string{at + "[1].metadata.name: Duplicate value: \"data\""},
		},
		"no storage": {
			claims: claimTemplates(`{"metadata":{"name":"data"},"spec":{}}`),
			want:   []string{at + "[0].spec.resources.requests[storage]: Required value"},
		},
		"too little storage": {
			claims: claimTemplates(strings.Replace(dataClaim, "1Gi", "0", 1)),
			want:   []string{at + "[0].spec.resources.requests[storage]: Invalid value: \"0\""},
		},
		"bad label": {
			claims: claimTemplates(strings.Replace(dataClaim, `"name"`, `"labels":{"a b":"c"},"name"`, 1)),
			want:   []string{at + "[0].metadata.labels: Invalid value: \"a b\""},
		},
		"too many": {
			claims: claimTemplates(strings.Split(strings.Repeat(dataClaim+"\n", 65), "\n")[:65]...),
			want:   []string{at + ": Too many: 65: must have at most 64 items"},
		},
		"too large": {
			claims: claimTemplates(strings.Replace(dataClaim, `{"x":1}`, `"`+strings.Repeat("x", MaxTemplateSize)+`"`, 1)),
			want:   []string{at + ": Too long: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// A sandbox that a user makes may have a volume that it does not mount.
			expect(t, ValidateSandbox(sandbox(t, func(s *v1alpha1.Sandbox) { s.Spec.VolumeClaimTemplates = tc.claims })), tc.want)
			expect(t, validateVolumeClaimTemplates(tc.claims, specPath.Child("volumeClaimTemplates")), tc.want)
		})
	}
}

func TestVolumesOfASetAreMounted(t *testing.T) {
	unmounted := []string{"spec.volumeClaimTemplates[0].metadata.name: Invalid value: \"data\": must be mounted by a container"}
	tests := map[string]struct {
		spec string
		want []string
	}{
		"by a container":       {spec: `"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"data","mountPath":"/d"}]}]`},
		"by an init container": {spec: `"initContainers":[{"name":"i","image":"b","volumeMounts":[{"name":"data","mountPath":"/d"}]}],"containers":[{"name":"a","image":"b"}]`},
		"as a device":          {spec: `"containers":[{"name":"a","image":"b","volumeDevices":[{"name":"data","devicePath":"/d"}]}]`},
		"not at all":           {spec: `"containers":[{"name":"a","image":"b"}]`, want: unmounted},
		"another volume":       {spec: `"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"tmp","mountPath":"/d"}]}]`, want: unmounted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandboxSet(set(t, func(s *v1alpha1.SandboxSet) {
				s.Spec.Template = rawJSON(`{"spec":{` + tc.spec + `}}`)
				s.Spec.VolumeClaimTemplates = claimTemplates(dataClaim)
			})), tc.want)
		})
	}
}

func TestValidatePauseStrategy(t *testing.T) {
	tests := map[string]struct {
		strategy *v1alpha1.PauseStrategy
		want     []string
	}{
		"none":      {},
		"empty":     {strategy: &v1alpha1.PauseStrategy{}},
		"stop":      {strategy: &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}},
		"hibernate": {strategy: &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyHibernate}, want: []string{"spec.pauseStrategy.type: " + yet + "pausing by Hibernate; use Stop"}},
		"sleep":     {strategy: &v1alpha1.PauseStrategy{Type: "Sleep"}, want: []string{"spec.pauseStrategy.type: Unsupported value: \"Sleep\""}},
		"both": {
			strategy: &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop, HibernateStrategy: &v1alpha1.HibernateStrategy{}},
			want:     []string{"spec.pauseStrategy.hibernateStrategy: Forbidden: only with type Hibernate"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandboxSet(set(t, func(s *v1alpha1.SandboxSet) { s.Spec.PauseStrategy = tc.strategy })), tc.want)
		})
	}
}
