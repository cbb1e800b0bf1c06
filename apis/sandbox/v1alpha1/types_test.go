// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What clients see of an object that has hardly anything in it.
func TestJSON(t *testing.T) {
	const meta = `"metadata":{}`
	tests := map[string]struct {
		obj  runtime.Object
		want string
	}{
		"claim":    {&SandboxClaim{}, `{` + meta + `,"spec":{},"status":{"claimedReplicas":0}}`},
		"access":   {&SandboxClaimRuntimeAccess{}, `{` + meta + `,"spec":{},"status":{}}`},
		"release":  {&SandboxClaimRelease{}, `{` + meta + `,"spec":{},"status":{"remaining":0}}`},
		"set":      {&SandboxSet{}, `{` + meta + `,"spec":{},"status":{"replicas":0,"availableReplicas":0}}`},
		"template": {&SandboxTemplate{}, `{` + meta + `,"spec":{}}`},
		"sandbox":  {&Sandbox{}, `{` + meta + `,"spec":{},"status":{}}`},
		"sandbox with an address": {
			&Sandbox{Status: SandboxStatus{SandboxIP: "10.0.0.1", PodInfo: PodInfo{PodIP: "10.0.0.1"}}},
			`{` + meta + `,"spec":{},"status":{"podInfo":{"podIP":"10.0.0.1"},"sandboxIp":"10.0.0.1"}}`,
		},
		"sandbox whose pod has no labels": {
			&Sandbox{Status: SandboxStatus{PodInfo: PodInfo{Annotations: map[string]string{}, Labels: map[string]string{}}}},
			`{` + meta + `,"spec":{},"status":{}}`,
		},
		"template kept as sent": {
			&Sandbox{Spec: SandboxSpec{EmbeddedSandboxTemplate: EmbeddedSandboxTemplate{
				Template: &runtime.RawExtension{Raw: []byte(`{"spec":{"fromTheFuture":1.50}}`)},
			}}},
			`{` + meta + `,"spec":{"template":{"spec":{"fromTheFuture":1.50}}},"status":{}}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tc.obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodTemplate(t *testing.T) {
	want := corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "busybox"}}},
	}
	raw, err := RawTemplate(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := PodTemplate(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}

	for name, text := range map[string]string{"no JSON": `{`, "wrong type": `{"spec":[]}`, "no object": `7`} {
		if _, err := PodTemplate(&runtime.RawExtension{Raw: []byte(text)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The texts are part of the contract, so they stand here a second time.
func TestMessages(t *testing.T) {
	tests := map[string]struct{ got, want string }{
		"progress":          {ClaimingMessage(1, 3), "Claiming sandboxes: 1/3 claimed"},
		"claimed":           {ClaimedMessage(3, 3), "Successfully claimed 3/3 sandboxes"},
		"claimed condition": {ClaimedConditionMessage(3), "Successfully claimed all 3 sandboxes"},
		"timeout":           {ClaimTimeoutMessage(time.Minute, 0, 3), "Timeout reached after 1m0s, claimed 0/3 sandboxes"},
		"timeout condition": {ClaimTimeoutConditionMessage(time.Minute, 0, 3), "Timeout after 1m0s, claimed 0/3"},
		"set not found":     {SandboxSetNotFoundMessage("ns", "pool"), "SandboxSet pool not found in namespace ns"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %q, want %q", tc.got, tc.want)
			}
		})
	}
}
