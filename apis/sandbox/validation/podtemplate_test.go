// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
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
			expect(t, validatePodTemplate(rawJSON(tc.raw), field.NewPath("template")), tc.want)
		})
	}
}
