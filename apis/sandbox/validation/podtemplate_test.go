// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidatePodTemplate(t *testing.T) {
	const containers = "\"containers\":[{\"name\":\"sandbox\",\"image\":\"busybox\"}]"
	spec := func(fields string) string { return "{\"spec\":{" + fields + "}}" }
	metadata := func(fields string) string { return "{\"metadata\":{" + fields + "},\"spec\":{" + containers + "}}" }

	tests := map[string]struct {
		raw  string
		want []string
	}{
		"minimal":          {raw: spec(containers)},
		"unknown fields":   {raw: spec(containers + ",\"fromTheFuture\":{\"a\":[1]}")},
		"metadata":         {raw: metadata("\"labels\":{\"a\":\"b\"},\"annotations\":{\"agents.kruise.io/cleanup-enabled\":\"true\"},\"creationTimestamp\":null")},
		"init containers":  {raw: spec("\"initContainers\":[{\"name\":\"runtime\",\"image\":\"busybox\"}]," + containers)},
		"exact quantities": {raw: spec("\"containers\":[{\"name\":\"a\",\"image\":\"b\",\"resources\":{\"requests\":{\"cpu\":1,\"memory\":\"1Gi\"}}}]")},
		"too many ports": {
			raw:  spec("\"containers\":[{\"name\":\"a\",\"image\":\"b\",\"ports\":[" + repeated("{}", maxListObjects+1) + "]}]"),
			want: []string{"template.spec.containers[0].ports: Too many: 257: must have at most 256 items"},
		},
		"no spec":          {raw: "{}", want: []string{"template.spec.containers: Required value"}},
		"no containers":    {raw: spec("\"containers\":[]"), want: []string{"template.spec.containers: Required value: at least one container is required"}},
		"wrong field case": {raw: spec("\"Containers\":[{\"name\":\"a\",\"image\":\"b\"}]"), want: []string{"template.spec.containers: Required value"}},
		"not an object":    {raw: "\"text\"", want: []string{"template: Invalid value: "}},
		"not JSON":         {raw: "{", want: []string{"template: Invalid value: decoding pod template: "}},
		"a string for a list": {
			raw:  spec("\"containers\":\"none\""),
			want: []string{"template.spec.containers: Invalid value: string where []v1.Container is expected"},
		},
		"a number for a string": {
			raw:  spec("\"containers\":[{\"name\":\"a\",\"image\":7}]"),
			want: []string{"template.spec.containers.image: Invalid value: number where string is expected"},
		},
		"a quantity that is none": {
			raw:  spec("\"containers\":[{\"name\":\"a\",\"image\":\"b\",\"resources\":{\"limits\":{\"cpu\":\"lots\"}}}]"),
			want: []string{"template: Invalid value: decoding pod template: quantities must match"},
		},
		"containers": {
			raw: spec("\"initContainers\":[{\"name\":\"a\",\"image\":\"b\"}],\"containers\":[{},{\"name\":\"No\",\"image\":\" b\"},{\"name\":\"a\",\"image\":\"b\"}]"),
			want: []string{
				"template.spec.containers[0].name: Required value",
				"template.spec.containers[0].image: Required value",
				"template.spec.containers[1].name: Invalid value: \"No\": ",
				"template.spec.containers[1].image: Invalid value: \" b\": must not have leading or trailing whitespace",
				"template.spec.containers[2].name: Duplicate value: \"a\"",
			},
		},
		"labels and annotations": {
			raw: metadata("\"labels\":{\"a b\":\"c\"},\"annotations\":{\"d e\":\"f\"}"),
			want: []string{
				"template.metadata.labels: Invalid value: \"a b\": ",
				"template.metadata.annotations: Invalid value: \"d e\": ",
			},
		},
		"keys of E2B": {
			raw: metadata("\"labels\":{\"e2b.agents.kruise.io/a\":\"b\"},\"annotations\":{\"e2b.agents.kruise.io/c\":\"d\"}"),
			want: []string{
				"template.metadata.labels[e2b.agents.kruise.io/a]: Forbidden: keys under e2b.agents.kruise.io/ are not allowed in a template",
				"template.metadata.annotations[e2b.agents.kruise.io/c]: Forbidden: ",
			},
		},
		"too large": {
			raw:  spec(containers + ",\"padding\":\"" + strings.Repeat("x", 2<<20) + "\""),
			want: []string{"template: Too long: may not be more than 262144 bytes"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidatePodTemplate(rawJSON(tc.raw), field.NewPath("template")), tc.want)
		})
	}
}

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
			claims: claimTemplates(strings.Replace(dataClaim, `{"x":1}`, `"`+strings.Repeat("x", maxTemplateSize)+`"`, 1)),
			want:   []string{at + ": Too long: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// A sandbox that a user makes may have a volume that it does not mount.
			expect(t, ValidateSandbox(sandbox(t, func(s *v1alpha1.Sandbox) { s.Spec.VolumeClaimTemplates = tc.claims })), tc.want)
			expect(t, ValidateVolumeClaimTemplates(tc.claims, specPath.Child("volumeClaimTemplates")), tc.want)
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
