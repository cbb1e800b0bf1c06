// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
)

var (
	extensionsNow = schema.GroupVersion{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1"}
	agentsNow     = schema.GroupVersion{Group: v1alpha1.AgentsGroup, Version: "v1beta1"}
)

func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	obj := new(T)
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return obj
}

// carryCase is what is stored, what is written of it in the words of the hub, in which those
// of the other version are already, and what comes of it.
type carryCase struct{ stored, written, want string }

func testCarry[T any](t *testing.T, version schema.GroupVersion, cases map[string]carryCase) {
	carrier := Carrier{newScheme()}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, written, want := decode[T](t, tc.stored), decode[T](t, tc.written), decode[T](t, tc.want)
			if err := carrier.Carry(any(written).(runtime.Object), any(stored).(runtime.Object), version); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, written); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(decode[T](t, tc.stored), stored); diff != "" {
				t.Errorf("the stored object was changed:\n%s", diff)
			}
		})
	}
}

func TestCarryPools(t *testing.T) {
	testCarry[v1alpha1.SandboxSet](t, extensionsNow, map[string]carryCase{
		"a field that is seen, beside some that are not": {
			`{"spec":{"replicas":1,"templateRef":{"name":"t"},"patch":{"a":1},"revisionHistoryLimit":3,"updateStrategy":{"maxUnavailable":2}}}`,
			`{"spec":{"replicas":5,"templateRef":{"name":"t"},"updateStrategy":{"type":"RollingUpdate"}}}`,
			`{"spec":{"replicas":5,"templateRef":{"name":"t"},"patch":{"a":1},"revisionHistoryLimit":3,"updateStrategy":{"maxUnavailable":2}}}`,
		},
		"a part of a struct of which another is not seen": {
			`{"spec":{"replicas":1,"templateRef":{"name":"t"},"updateStrategy":{"maxUnavailable":2}}}`,
			`{"spec":{"replicas":1,"templateRef":{"name":"t"},"updateStrategy":{"type":"Recreate"}}}`,
			`{"spec":{"replicas":1,"templateRef":{"name":"t"},"updateStrategy":{"type":"Recreate","maxUnavailable":2}}}`,
		},
		"a template that is written out is shown by name": {
			`{"metadata":{"name":"p"},"spec":{"replicas":1,"template":{"spec":{}}}}`,
			`{"metadata":{"name":"p"},"spec":{"replicas":2,"templateRef":{"name":"p"},"updateStrategy":{"type":"RollingUpdate"}}}`,
			`{"metadata":{"name":"p"},"spec":{"replicas":2,"template":{"spec":{}}}}`,
		},
		"and gives way to another name": {
			`{"metadata":{"name":"p"},"spec":{"replicas":1,"template":{"spec":{}},"volumeClaimTemplates":[{"a":1}]}}`,
			`{"metadata":{"name":"p"},"spec":{"replicas":1,"templateRef":{"name":"t"},"updateStrategy":{"type":"RollingUpdate"}}}`,
			`{"metadata":{"name":"p"},"spec":{"replicas":1,"templateRef":{"name":"t"}}}`,
		},
		"status": {
			`{"spec":{"replicas":1,"templateRef":{"name":"t"}},"status":{"availableReplicas":1,"replicas":1,"updatedReplicas":1}}`,
			`{"spec":{"replicas":1,"templateRef":{"name":"t"},"updateStrategy":{"type":"RollingUpdate"}},"status":{"availableReplicas":2,"replicas":1}}`,
			`{"spec":{"replicas":1,"templateRef":{"name":"t"}},"status":{"availableReplicas":2,"replicas":1,"updatedReplicas":1}}`,
		},
	})
}

func TestCarryClaims(t *testing.T) {
	const condition = `{"type":%q,"status":"True","reason":"A","message":"","lastTransitionTime":null,"observedGeneration":1}`
	is := func(kind string) string { return strings.Replace(condition, "%q", `"`+kind+`"`, 1) }
	changed := strings.Replace(is("Ready"), "True", "False", 1)
	testCarry[v1alpha1.SandboxClaim](t, extensionsNow, map[string]carryCase{
		"a map is the writer's as a whole": {
			`{"spec":{"warmPoolRef":{"name":"p"},"replicas":2,"additionalPodMetadata":{"labels":{"a":"1","b":"1"},"annotations":{"x":"y"}}}}`,
			`{"spec":{"warmPoolRef":{"name":"p"},"additionalPodMetadata":{"labels":{"a":"2"},"annotations":{"x":"y"}}}}`,
			`{"spec":{"warmPoolRef":{"name":"p"},"replicas":2,"additionalPodMetadata":{"labels":{"a":"2"},"annotations":{"x":"y"}}}}`,
		},
		"a list is, too": {
			`{"spec":{"warmPoolRef":{"name":"p"},"envVars":{"S":"s"},"env":[{"name":"A","value":"1"},{"name":"B","value":"1"}]}}`,
			`{"spec":{"warmPoolRef":{"name":"p"},"env":[{"name":"B","value":"2"}]}}`,
			`{"spec":{"warmPoolRef":{"name":"p"},"envVars":{"S":"s"},"env":[{"name":"B","value":"2"}]}}`,
		},
		"a field that was seen is removed": {
			`{"spec":{"warmPoolRef":{"name":"p"},"labels":{"a":"b"},"lifecycle":{"shutdownPolicy":"Delete"},"env":[{"name":"A"}]}}`,
			`{"spec":{"warmPoolRef":{"name":"p"}}}`,
			`{"spec":{"warmPoolRef":{"name":"p"},"labels":{"a":"b"}}}`,
		},
		"conditions are merged by type": {
			`{"spec":{"templateName":"s"},"status":{"phase":"Completed","conditions":[` + is("Completed") + `,` + is("Ready") + `,` + is("Finished") + `]}}`,
			`{"spec":{"warmPoolRef":{"name":"s"}},"status":{"conditions":[` + changed + `,` + is("Other") + `]}}`,
			`{"spec":{"templateName":"s"},"status":{"phase":"Completed","conditions":[` + is("Completed") + `,` + changed + `,` + is("Other") + `]}}`,
		},
		"several sandboxes, of which one is shown": {
			`{"spec":{"templateName":"s"},"status":{"sandboxes":[{"name":"a","uid":"1"},{"name":"b","uid":"2"}]}}`,
			`{"spec":{"warmPoolRef":{"name":"s"},"lifecycle":{"shutdownPolicy":"Delete"}},"status":{"sandboxes":[{"name":"a"}]}}`,
			`{"spec":{"templateName":"s","lifecycle":{"shutdownPolicy":"Delete"}},"status":{"sandboxes":[{"name":"a","uid":"1"},{"name":"b","uid":"2"}]}}`,
		},
		"a templateName stays while the pool that it is shown as is the same": {
			`{"spec":{"templateName":"s","replicas":3}}`, `{"spec":{"warmPoolRef":{"name":"s"}}}`, `{"spec":{"templateName":"s","replicas":3}}`,
		},
		"it gives way to another pool": {
			`{"spec":{"templateName":"s","replicas":3}}`, `{"spec":{"warmPoolRef":{"name":"o"}}}`, `{"spec":{"warmPoolRef":{"name":"o"},"replicas":3}}`,
		},
		"to a template in its place": {
			`{"spec":{"templateName":"s","replicas":3}}`, `{"spec":{"sandboxTemplateRef":{"name":"t"},"warmPool":"none"}}`,
			`{"spec":{"sandboxTemplateRef":{"name":"t"},"warmPool":"none","replicas":3}}`,
		},
		"and to a template beside it": {
			`{"spec":{"templateName":"s","replicas":3}}`, `{"spec":{"warmPoolRef":{"name":"s"},"sandboxTemplateRef":{"name":"t"}}}`,
			`{"spec":{"warmPoolRef":{"name":"s"},"sandboxTemplateRef":{"name":"t"},"replicas":3}}`,
		},
	})
}

func TestCarryTemplates(t *testing.T) {
	const shown = `"envVarsInjectionPolicy":"Disallowed","volumeClaimTemplatesPolicy":"Disallowed"`
	testCarry[v1alpha1.SandboxTemplate](t, extensionsNow, map[string]carryCase{
		"what is not seen": {
			`{"spec":{"template":{"a":1},"maxFreshSandboxes":3}}`,
			`{"spec":{"template":{"a":2},"networkPolicyManagement":"Unmanaged",` + shown + `}}`,
			`{"spec":{"template":{"a":2},"maxFreshSandboxes":3}}`,
		},
		// A client that is shown a managed network keeps it managed, without a policy
		// by the defaults.
		"a policy goes, its management stays": {
			`{"spec":{"template":{"a":1},"networkPolicy":{}}}`,
			`{"spec":{"template":{"a":1},"networkPolicyManagement":"Managed",` + shown + `}}`,
			`{"spec":{"template":{"a":1},"networkPolicyManagement":"Managed"}}`,
		},
		"a policy comes, and is not managed": {
			`{"spec":{"template":{"a":1}}}`,
			`{"spec":{"template":{"a":1},"networkPolicy":{},"networkPolicyManagement":"Unmanaged",` + shown + `}}`,
			`{"spec":{"template":{"a":1},"networkPolicy":{},"networkPolicyManagement":"Unmanaged"}}`,
		},
		"a template that is named gives way to one that is written out": {
			`{"spec":{"templateRef":{"name":"o"}}}`,
			`{"spec":{"template":{"a":1},"networkPolicyManagement":"Unmanaged",` + shown + `}}`,
			`{"spec":{"template":{"a":1}}}`,
		},
	})
}

func TestCarrySandboxes(t *testing.T) {
	testCarry[v1alpha1.Sandbox](t, agentsNow, map[string]carryCase{
		"suspended": {
			`{"spec":{"template":{"a":1},"persistentContents":["ip"]},"status":{"phase":"Running","sandboxIp":"10.0.0.1"}}`,
			`{"spec":{"template":{"a":1},"paused":true,"shutdownPolicy":"Delete"}}`,
			`{"spec":{"template":{"a":1},"paused":true,"persistentContents":["ip"]},"status":{"phase":"Running","sandboxIp":"10.0.0.1"}}`,
		},
	})
}

// A write that would lose what it cannot say is refused.
func TestWhatCannotBeCarriedIsRefused(t *testing.T) {
	noConversions := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(noConversions); err != nil {
		t.Fatal(err)
	}
	served := updateStrategy{sandboxset.NewStrategy(newScheme(), nil), secondGroup{Carrier{noConversions}, &Words{}, nil}}
	stored := decode[v1alpha1.SandboxSet](t, `{"metadata":{"name":"p","namespace":"n","resourceVersion":"1"},"spec":{"replicas":1,"templateRef":{"name":"t"},"revisionHistoryLimit":3}}`)
	written := stored.DeepCopy()
	written.Spec.RevisionHistoryLimit = nil
	served.PrepareForUpdate(in(extensionsNow), written, stored)
	errs := served.ValidateUpdate(in(extensionsNow), written, stored)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "cannot say would be lost") {
		t.Errorf("the update is answered with %v", errs)
	}
	if errs := served.ValidateUpdate(in(v1alpha1.SchemeGroupVersion), written, stored); len(errs) > 0 {
		t.Errorf("in its own group it is answered with %v", errs)
	}
}
