// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestValidateAgentPodMetadata(t *testing.T) {
	label := func(key, value string) v1alpha1.PodMetadata {
		return v1alpha1.PodMetadata{Labels: map[string]string{key: value}}
	}
	annotation := func(key string) v1alpha1.PodMetadata {
		return v1alpha1.PodMetadata{Annotations: map[string]string{key: "any value: at all"}}
	}
	tests := map[string]struct {
		brings  v1alpha1.PodMetadata
		domains []string
		want    string // what the error has; empty: it may be
	}{
		"nothing":                       {},
		"a label":                       {brings: label("sandbox.users.io/team", "a")},
		"a label below":                 {brings: label("x.sandbox.users.io/team", "a")},
		"a label of a longer domain":    {brings: label("xsandbox.users.io/team", "a"), want: "sandbox.users.io or below"},
		"a label above":                 {brings: label("users.io/team", "a"), want: "sandbox.users.io or below"},
		"a label without domain":        {brings: label("team", "a"), want: "need a domain prefix"},
		"a domain as label":             {brings: label("sandbox.users.io", "a"), want: "need a domain prefix"},
		"the router":                    {brings: label("app", "sandbox-router"), want: "let through"},
		"a label that is no name":       {brings: label("sandbox.users.io/a b", "a"), want: "name part"},
		"a label of no value":           {brings: label("sandbox.users.io/a", "hush hush"), want: "no value of a label"},
		"another domain":                {brings: label("a.example/team", "a"), domains: []string{"b.example", "a.example"}},
		"only the domains that are set": {brings: label("sandbox.users.io/team", "a"), domains: []string{"a.example"}, want: "a.example or below"},
		"no domains":                    {brings: label("sandbox.users.io/team", "a"), domains: []string{}, want: "need a domain prefix"},
		"a platform that is allowed":    {brings: label("istio.io/rev", "a"), domains: []string{"istio.io"}, want: "the platform"},
		"our own that are allowed":      {brings: label(v1alpha1.LabelSandboxPool, "a"), domains: []string{v1alpha1.GroupName}, want: "reserved"},
		"an annotation":                 {brings: annotation("a.example/note")},
		"an annotation without domain":  {brings: annotation("note")},
		"safe to evict":                 {brings: annotation(v1alpha1.AnnotationSafeToEvict)},
		"of Kubernetes":                 {brings: annotation("container.apparmor.security.beta.kubernetes.io/main"), want: "kubernetes.io are not for claims"},
		"of Kubernetes, in capitals":    {brings: annotation("K8s.io/x"), want: "k8s.io are not for claims"},
		"of agent-sandbox":              {brings: annotation(v1alpha1.AgentAnnotationPodName), want: "agents.x-k8s.io are not for claims"},
		"of its extensions":             {brings: annotation("extensions.agents.x-k8s.io/x"), want: "agents.x-k8s.io are not for claims"},
		"of a mesh":                     {brings: annotation("sidecar.istio.io/inject"), want: "the platform"},
		"of this system":                {brings: annotation(v1alpha1.AnnotationAPI), want: "reserved"},
		"of sandboxes":                  {brings: annotation(v1alpha1.AnnotationInplaceUpdateState), want: "reserved"},
		"an annotation that is no name": {brings: annotation("a b"), want: "name part"},
		"a key without end":             {brings: annotation(strings.Repeat("a", 100000)), want: "name part"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			domains := tc.domains
			if domains == nil {
				domains = []string{DefaultLabelDomain}
			}
			errs := ValidateAgentPodMetadata(&v1alpha1.SandboxClaimSpec{AdditionalPodMetadata: &tc.brings}, domains)
			if tc.want == "" {
				if len(errs) > 0 {
					t.Error(errs)
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want) {
				t.Fatalf("got %v, want %q", errs, tc.want)
			}
			if said := errs[0].Error(); strings.Contains(said, "hush") || strings.Contains(said, "any value") || len(said) > 1000 {
				t.Errorf("a value, or too much, is in %q", said)
			}
		})
	}
}
