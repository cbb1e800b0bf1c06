// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		object     runtime.Object
		text, want string
	}{
		"claim": {
			&SandboxClaim{}, `{"metadata":{},"spec":{"sandboxTemplateRef":{"name":"t"}}}`,
			`{"metadata":{},"spec":{"sandboxTemplateRef":{"name":"t"},"warmpool":"default"}}`,
		},
		"claim with a lifecycle": {
			&SandboxClaim{}, `{"metadata":{},"spec":{"sandboxTemplateRef":{"name":"t"},"warmpool":"none","lifecycle":{}}}`,
			`{"metadata":{},"spec":{"sandboxTemplateRef":{"name":"t"},"warmpool":"none","lifecycle":{"shutdownPolicy":"Retain"}}}`,
		},
		"template": {
			&SandboxTemplate{}, `{"metadata":{},"spec":{}}`,
			`{"metadata":{},"spec":{"networkPolicyManagement":"Managed","envVarsInjectionPolicy":"Disallowed"}}`,
		},
		"pool, of which replicas are required": {
			&SandboxWarmPool{}, `{"metadata":{},"spec":{"sandboxTemplateRef":{"name":"t"}}}`,
			`{"metadata":{},"spec":{"sandboxTemplateRef":{"name":"t"},"updateStrategy":{"type":"OnReplenish"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := json.Unmarshal([]byte(tc.text), tc.object); err != nil {
				t.Fatal(err)
			}
			scheme.Default(tc.object)
			if diff := cmp.Diff(tc.want, toJSON(t, tc.object)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Claims of later versions, and of agents.kruise.io, are shown as far as there are words for
// them.
func TestClaimsAreShown(t *testing.T) {
	for name, tc := range map[string]struct{ stored, want string }{
		"by template":          {`{"sandboxTemplateRef":{"name":"t"},"warmPool":"none"}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"none"}`},
		"by template, bound":   {`{"sandboxTemplateRef":{"name":"t"},"warmPool":"default","warmPoolRef":{"name":"p"}}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"default"}`},
		"by pool":              {`{"warmPool":"default","warmPoolRef":{"name":"p"}}`, `{"sandboxTemplateRef":{"name":""},"warmpool":"p"}`},
		"by the name of a set": {`{"warmPool":"default","templateName":"s"}`, `{"sandboxTemplateRef":{"name":""},"warmpool":"s"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var stored hub.SandboxClaim
			if err := json.Unmarshal([]byte(tc.stored), &stored.Spec); err != nil {
				t.Fatal(err)
			}
			var claim SandboxClaim
			claimFromHub(&stored, &claim)
			if diff := cmp.Diff(tc.want, toJSON(t, claim.Spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is stored of a claim that names a pool and no template is the claim that would have
// been shown so.
func TestClaimByPoolAlone(t *testing.T) {
	claim := &SandboxClaim{Spec: SandboxClaimSpec{WarmPool: "p"}}
	var stored hub.SandboxClaim
	claimToHub(claim, &stored)
	if ref := stored.Spec.WarmPoolRef; ref == nil || ref.Name != "p" || stored.Spec.SandboxTemplateRef != nil || stored.Spec.WarmPool != "" {
		t.Errorf("stored is %s", toJSON(t, stored.Spec))
	}
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
