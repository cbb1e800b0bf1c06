// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestAllowedKeys(t *testing.T) {
	policy := &v1alpha1.PodMetadataPolicy{Labels: []string{"team"}, Annotations: []string{"note"}}
	for field, want := range map[string]string{"labels": "team", "annotations": "note"} {
		if got := AllowedKeys(policy, field); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v", field, got)
		}
		if got := AllowedKeys(&v1alpha1.PodMetadataPolicy{}, field); len(got) != 0 {
			t.Errorf("%s of an empty policy: %v", field, got)
		}
		if got := AllowedKeys(nil, field); len(got) != 1 || got[0] != AnyKey {
			t.Errorf("%s without a policy: %v", field, got)
		}
	}
}

func TestPodMetadata(t *testing.T) {
	tests := map[string]struct {
		brings, template map[string]string
		allowed          []string
		passes           map[string]string
		heldBack         []string
	}{
		"nothing": {allowed: []string{"*"}},
		"all": {
			brings: map[string]string{"app": "a", "app.kubernetes.io/name": "b"}, allowed: []string{"*"},
			passes: map[string]string{"app": "a", "app.kubernetes.io/name": "b"},
		},
		"none": {brings: map[string]string{"b": "", "a": ""}, heldBack: []string{"a", "b"}},
		"keys and beginnings": {
			brings:   map[string]string{"team": "a", "teams": "b", "example.com/x": "c", "example.com.evil/x": "d"},
			allowed:  []string{"team", "example.com/*"},
			passes:   map[string]string{"team": "a", "example.com/x": "c"},
			heldBack: []string{"example.com.evil/x", "teams"},
		},
		"keys with a prefix": {
			brings: map[string]string{
				"app": "a", "example.com/app": "b", "app.kubernetes.io/name": "c", "APP.kubernetes.io/name": "c", "x.k8s.io/y": "d",
				"agents.kruise.io/allow-internet-access": "false", "agents.kruise.io/created-by": "e", "e2b.agents.kruise.io/x": "f", "sandlot.io/agent-runtime": "g",
			},
			allowed: []string{PrefixedKeys},
			passes:  map[string]string{"example.com/app": "b", "agents.kruise.io/allow-internet-access": "false"},
			heldBack: []string{
				"APP.kubernetes.io/name", "agents.kruise.io/created-by", "app", "app.kubernetes.io/name", "e2b.agents.kruise.io/x", "sandlot.io/agent-runtime", "x.k8s.io/y",
			},
		},
		"a star in the middle is none": {brings: map[string]string{"abc": ""}, allowed: []string{"a*c"}, heldBack: []string{"abc"}},
		"what platforms act on, whatever is allowed": {
			brings: map[string]string{"sidecar.istio.io/inject": "true"}, allowed: []string{"*", "sidecar.istio.io/inject"},
			heldBack: []string{"sidecar.istio.io/inject"},
		},
		"the template's own": {
			brings: map[string]string{"app": "payments", "tier": "x"}, template: map[string]string{"app": "sandbox", "tier": "x"},
			allowed: []string{"*"}, passes: map[string]string{"tier": "x"}, heldBack: []string{"app"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			passes, heldBack := PodMetadata(tt.brings, tt.template, tt.allowed)
			if diff := cmp.Diff(tt.passes, passes, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.heldBack, heldBack); diff != "" {
				t.Errorf("held back (-want +got):\n%s", diff)
			}
		})
	}
}
