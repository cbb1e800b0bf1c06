// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestAgentPodMetadata(t *testing.T) {
	domains := []string{DefaultLabelDomain, "example.com"}
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		want                string // part of the field; empty is no error
	}{
		"none":                     {nil, nil, ""},
		"domain":                   {map[string]string{"sandbox.users.io/team": "a"}, nil, ""},
		"domain below":             {map[string]string{"x.example.com/team": "a"}, nil, ""},
		"no domain":                {map[string]string{"team": "a"}, nil, "labels[team]"},
		"the router":               {map[string]string{"app": "sandbox-router"}, nil, "labels[app]"},
		"other domain":             {map[string]string{"example.org/team": "a"}, nil, "labels[example.org/team]"},
		"domain that only ends so": {map[string]string{"badexample.com/team": "a"}, nil, "labels[badexample.com/team]"},
		"long value":               {map[string]string{"example.com/team": strings.Repeat("a", 64)}, nil, "labels"},
		"any annotation":           {nil, map[string]string{"note": "a b"}, ""},
		"annotation of Kubernetes": {nil, map[string]string{"x.k8s.io/y": "z"}, "annotations[x.k8s.io/y]"},
		"own annotation":           {nil, map[string]string{"agents.x-k8s.io/pod-name": "z"}, "annotations[agents.x-k8s.io/pod-name]"},
		"platform's annotation":    {nil, map[string]string{"sidecar.istio.io/inject": "true"}, "annotations[sidecar.istio.io/inject]"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.SandboxClaimSpec{AdditionalPodMetadata: &v1alpha1.PodMetadata{Labels: tc.labels, Annotations: tc.annotations}}
			errs := ValidateAgentPodMetadata(spec, domains)
			switch {
			case tc.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case tc.want != "" && (len(errs) == 0 || !strings.Contains(errs[0].Field, tc.want)):
				t.Errorf("got %v, want an error of %s", errs, tc.want)
			}
		})
	}
}

func TestLabelDomains(t *testing.T) {
	if errs := ValidateLabelDomains([]string{DefaultLabelDomain, "a-b.c"}, field.NewPath("d")); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := ValidateLabelDomains([]string{"a/b", ""}, field.NewPath("d")); len(errs) != 2 {
		t.Errorf("got %v", errs)
	}
}
