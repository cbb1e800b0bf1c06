// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// shown returns the JSON of what is shown of the JSON of what is stored.
func shown[H, V any](t *testing.T, stored string, convert func(*H, *V)) string {
	t.Helper()
	in, out := new(H), new(V)
	if err := json.Unmarshal([]byte(stored), in); err != nil {
		t.Fatal(err)
	}
	convert(in, out)
	return toJSON(t, out)
}

// inOrder returns JSON as it is encoded.
func inOrder[V any](t *testing.T, text string) string {
	t.Helper()
	out := new(V)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return toJSON(t, out)
}

// What agents.kruise.io alone can say is shown as far as there are words for it.
func TestClaimsOfTheOtherGroupAreShown(t *testing.T) {
	ready := `{"type":"Ready","status":"True","reason":"Claimed","message":"","lastTransitionTime":null,"observedGeneration":7}`
	for name, tc := range map[string]struct{ stored, want string }{
		"by the name of a set": {
			`{"spec":{"templateName":"s","replicas":2,"warmPool":"default"},"status":{"claimedReplicas":0}}`,
			`{"spec":{"warmPoolRef":{"name":"s"}}}`,
		},
		"by pool": {
			`{"spec":{"warmPoolRef":{"name":"s"},"warmPool":"default"},"status":{}}`,
			`{"spec":{"warmPoolRef":{"name":"s"}}}`,
		},
		"by template": {
			`{"spec":{"sandboxTemplateRef":{"name":"t"},"warmPool":"none"},"status":{}}`,
			`{"spec":{"sandboxTemplateRef":{"name":"t"},"warmpool":"none"}}`,
		},
		"several sandboxes": {
			`{"spec":{"templateName":"s"},"status":{"sandboxes":[{"name":"a","uid":"1","podIPs":["10.0.0.1"]},{"name":"b"}]}}`,
			`{"spec":{"warmPoolRef":{"name":"s"}},"status":{"sandbox":{"name":"a","podIPs":["10.0.0.1"]}}}`,
		},
		"one of several is named": {
			`{"metadata":{"annotations":{"agents.x-k8s.io/sandbox-name":"b"}},"spec":{"templateName":"s"},"status":{"sandboxes":[{"name":"a"},{"name":"b","podIPs":["10.0.0.2"]}]}}`,
			`{"metadata":{"annotations":{"agents.x-k8s.io/sandbox-name":"b"}},"spec":{"warmPoolRef":{"name":"s"}},"status":{"sandbox":{"name":"b","podIPs":["10.0.0.2"]}}}`,
		},
		"a name that a user wrote is no sandbox of the claim": {
			`{"metadata":{"annotations":{"agents.x-k8s.io/sandbox-name":"other"}},"spec":{"templateName":"s"},"status":{}}`,
			`{"metadata":{"annotations":{"agents.x-k8s.io/sandbox-name":"other"}},"spec":{"warmPoolRef":{"name":"s"}}}`,
		},
		"nor hides the one of the claim": {
			`{"metadata":{"annotations":{"agents.x-k8s.io/sandbox-name":"other"}},"spec":{"templateName":"s"},"status":{"sandboxes":[{"name":"a"}]}}`,
			`{"metadata":{"annotations":{"agents.x-k8s.io/sandbox-name":"other"}},"spec":{"warmPoolRef":{"name":"s"}},"status":{"sandbox":{"name":"a"}}}`,
		},
		"bound, not counted yet": {
			`{"metadata":{"annotations":{"sandlot.io/api":"agents.x-k8s.io","agents.x-k8s.io/sandbox-name":"a"}},"spec":{"warmPoolRef":{"name":"s"}},"status":{}}`,
			`{"metadata":{"annotations":{"sandlot.io/api":"agents.x-k8s.io","agents.x-k8s.io/sandbox-name":"a"}},"spec":{"warmPoolRef":{"name":"s"}},"status":{"sandbox":{"name":"a"}}}`,
		},
		"expired": {
			`{"metadata":{"annotations":{"sandlot.io/api":"agents.x-k8s.io","agents.x-k8s.io/sandbox-name":"a"}},
				"spec":{"warmPoolRef":{"name":"s"},"lifecycle":{"shutdownPolicy":"Retain"}},
				"status":{"sandboxes":[{"name":"a"}],"conditions":[
				{"type":"Ready","status":"False","reason":"ClaimExpired","message":"","lastTransitionTime":null,"observedGeneration":7}]}}`,
			`{"metadata":{"annotations":{"sandlot.io/api":"agents.x-k8s.io","agents.x-k8s.io/sandbox-name":"a"}},
				"spec":{"warmPoolRef":{"name":"s"},"lifecycle":{"shutdownPolicy":"Retain"}},
				"status":{"conditions":[
				{"type":"Ready","status":"False","reason":"ClaimExpired","message":"","lastTransitionTime":null,"observedGeneration":7}]}}`,
		},
		"conditions": {
			`{"spec":{"templateName":"s"},"status":{"observedGeneration":7,"conditions":[
				{"type":"Completed","status":"True","reason":"Claimed","message":"","lastTransitionTime":null},
				{"type":"Ready","status":"True","reason":"Claimed","message":"","lastTransitionTime":null}]}}`,
			`{"spec":{"warmPoolRef":{"name":"s"}},"status":{"conditions":[` + ready + `]}}`,
		},
		"a condition says itself which generation it is about": {
			`{"spec":{"templateName":"s"},"status":{"observedGeneration":9,"conditions":[` + ready + `]}}`,
			`{"spec":{"warmPoolRef":{"name":"s"}},"status":{"conditions":[` + ready + `]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(inOrder[SandboxClaim](t, tc.want), shown(t, tc.stored, ClaimFromHub)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTemplatesOfTheOtherGroupAreShown(t *testing.T) {
	for name, tc := range map[string]struct{ stored, want string }{
		"without a policy it is not managed there": {
			`{"spec":{"template":{"spec":{}}}}`,
			`{"spec":{"podTemplate":{"spec":{}},"networkPolicyManagement":"Unmanaged","envVarsInjectionPolicy":"Disallowed","volumeClaimTemplatesPolicy":"Disallowed"}}`,
		},
		"with one it is": {
			`{"spec":{"networkPolicy":{}}}`,
			`{"spec":{"networkPolicy":{},"networkPolicyManagement":"Managed","envVarsInjectionPolicy":"Disallowed","volumeClaimTemplatesPolicy":"Disallowed"}}`,
		},
		"that refers to another one": {
			`{"spec":{"templateRef":{"name":"other"},"maxFreshSandboxes":3,"service":true,"envVarsInjectionPolicy":"Overrides"}}`,
			`{"spec":{"service":true,"networkPolicyManagement":"Unmanaged","envVarsInjectionPolicy":"Overrides","volumeClaimTemplatesPolicy":"Disallowed"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(inOrder[SandboxTemplate](t, tc.want), shown(t, tc.stored, TemplateFromHub)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSetsOfTheOtherGroupAreShown(t *testing.T) {
	selector := hub.AgentLabelPool + "=" + hub.NameHash("pool")
	for name, tc := range map[string]struct{ stored, want string }{
		"with a template of its own": {
			`{"metadata":{"name":"pool"},"spec":{"replicas":3,"template":{"spec":{}},"updateStrategy":{"maxUnavailable":1}},"status":{"observedGeneration":2,"replicas":3,"availableReplicas":2,"selector":"a=b"}}`,
			`{"metadata":{"name":"pool"},"spec":{"replicas":3,"sandboxTemplateRef":{"name":"pool"},"updateStrategy":{"type":"RollingUpdate"}},` +
				`"status":{"replicas":3,"readyReplicas":2,"selector":"` + selector + `","observedGeneration":2}}`,
		},
		"of a template": {
			`{"metadata":{"name":"pool"},"spec":{"replicas":0,"templateRef":{"name":"t"},"updateStrategy":{"type":"Recreate"}},"status":{}}`,
			`{"metadata":{"name":"pool"},"spec":{"replicas":0,"sandboxTemplateRef":{"name":"t"},"updateStrategy":{"type":"Recreate"}},"status":{"replicas":0,"selector":"` + selector + `"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(inOrder[SandboxWarmPool](t, tc.want), shown(t, tc.stored, WarmPoolFromHub)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is stored of this API's objects is in the words of the other one.
func TestWhatIsStored(t *testing.T) {
	claim := shown(t, `{"metadata":{"name":"c"},"spec":{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":"t"},"warmpool":"none",
		"lifecycle":{"ttlSecondsAfterFinished":0,"shutdownPolicy":"Delete"},"env":[{"name":"A","value":"b","containerName":"c"}]},
		"status":{"sandbox":{"name":"s","podIPs":["10.0.0.1"]}}}`, ClaimToHub)
	if diff := cmp.Diff(inOrder[hub.SandboxClaim](t, `{"metadata":{"name":"c"},"spec":{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":"t"},"warmPool":"none",
		"lifecycle":{"ttlSecondsAfterFinished":0,"shutdownPolicy":"Delete"},"env":[{"name":"A","value":"b","containerName":"c"}]},
		"status":{"sandboxes":[{"name":"s","podIPs":["10.0.0.1"]}]}}`), claim); diff != "" {
		t.Error(diff)
	}
	pool := shown(t, `{"metadata":{"name":"p"},"spec":{"replicas":2,"sandboxTemplateRef":{"name":"t"},"updateStrategy":{"type":"OnReplenish"}},
		"status":{"replicas":2,"readyReplicas":1,"selector":"x","observedGeneration":4}}`, WarmPoolToHub)
	if diff := cmp.Diff(inOrder[hub.SandboxSet](t, `{"metadata":{"name":"p"},"spec":{"replicas":2,"templateRef":{"name":"t"},"updateStrategy":{"type":"OnReplenish"}},
		"status":{"replicas":2,"availableReplicas":1,"observedGeneration":4}}`), pool); diff != "" {
		t.Error(diff)
	}
}

// The conversion of a claim is on the way of each create. It allocates what differs between
// the two and no more.
func BenchmarkClaim(b *testing.B) {
	claim := &SandboxClaim{Spec: SandboxClaimSpec{WarmPoolRef: &SandboxWarmPoolRef{Name: "p"}, Lifecycle: &Lifecycle{ShutdownPolicy: ShutdownDelete}}}
	claim.Status.Sandbox = ClaimedSandbox{Name: "s", PodIPs: []string{"10.0.0.1"}}
	b.ReportAllocs()
	for b.Loop() {
		var stored hub.SandboxClaim
		var back SandboxClaim
		ClaimToHub(claim, &stored)
		ClaimFromHub(&stored, &back)
	}
}

// TestConditionsAreSorted: clients of agent-sandbox are shown conditions by their type,
// whichever was stored first, and what is stored stays as it is.
func TestConditionsAreSorted(t *testing.T) {
	stored := &hub.SandboxClaim{}
	stored.Status.Conditions = []metav1.Condition{{Type: "Ready", ObservedGeneration: 1}, {Type: "Finished", ObservedGeneration: 1}}
	var shown SandboxClaim
	ClaimFromHub(stored, &shown)
	if got := shown.Status.Conditions; len(got) != 2 || got[0].Type != "Finished" || got[1].Type != "Ready" {
		t.Errorf("shown are %+v", got)
	}
	if stored.Status.Conditions[0].Type != "Ready" {
		t.Error("what is stored has changed")
	}
}
