// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The next pod of a sandbox of agent-sandbox is made of its template as it is then. What it
// is given in place stays the claim's to say.
func TestTemplateOfASandboxOfAgentSandbox(t *testing.T) {
	const only = "spec.template: " + yet + "changing more of a sandbox's template than its metadata"
	for name, test := range map[string]struct {
		annotations map[string]string
		owners      []metav1.OwnerReference
		want        []string
	}{
		"ours":             {nil, nil, []string{only}},
		"of agent-sandbox": {map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}, nil, nil},
		"changed in place": {map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup, v1alpha1.AnnotationInplaceUpdate: "{}"}, nil, []string{only}},
		"in a pool": {map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}, []metav1.OwnerReference{
			{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "1", Controller: ptr.To(true)},
		}, []string{only}},
	} {
		t.Run(name, func(t *testing.T) {
			old := sandbox(t, func(s *v1alpha1.Sandbox) { s.Annotations, s.OwnerReferences = test.annotations, test.owners })
			changed := old.DeepCopy()
			changed.Spec.Template = rawJSON(`{"spec":{"containers":[{"name":"a","image":"another"}]}}`)
			expect(t, ValidateSandboxUpdate(changed, old), test.want)
			changed.Spec.Template = rawJSON(`{"spec":{"containers":[]}}`)
			if len(ValidateSandboxUpdate(changed, old)) == 0 {
				t.Error("a template that makes no pod is taken")
			}
		})
	}
}

// TestChangesPod checks which changes of a template change the pod.
func TestChangesPod(t *testing.T) {
	const spec = `"spec":{"containers":[{"name":"main","image":"busybox:1"}]}`
	for name, test := range map[string]struct {
		from, to string
		want     bool
	}{
		"nothing":                   {`{` + spec + `}`, `{` + spec + `}`, false},
		"another image":             {`{` + spec + `}`, `{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`, true},
		"another account":           {`{` + spec + `}`, `{"spec":{"serviceAccountName":"a","containers":[{"name":"main","image":"busybox:1"}]}}`, true},
		"a field that is not known": {`{` + spec + `}`, `{"spec":{"fromTheFuture":1,"containers":[{"name":"main","image":"busybox:1"}]}}`, true},
		"written otherwise":         {`{` + spec + `}`, `{"metadata":{"creationTimestamp":null},` + spec + `}`, false},
		"a label":                   {`{` + spec + `}`, `{"metadata":{"labels":{"a":"b"}},` + spec + `}`, false},
		"a label of a platform":     {`{` + spec + `}`, `{"metadata":{"labels":{"azure.workload.identity/use":"true"}},` + spec + `}`, true},
		"another value of it":       {`{"metadata":{"annotations":{"iam.amazonaws.com/role":"a"}},` + spec + `}`, `{"metadata":{"annotations":{"iam.amazonaws.com/role":"b"}},` + spec + `}`, true},
		"the key as another kind":   {`{"metadata":{"annotations":{"istio.io/rev":"a"}},` + spec + `}`, `{"metadata":{"labels":{"istio.io/rev":"a"}},` + spec + `}`, true},
		"taken away":                {`{"metadata":{"annotations":{"iam.amazonaws.com/role":"a"}},` + spec + `}`, `{` + spec + `}`, true},
		"none any more":             {`{` + spec + `}`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(template string) *v1alpha1.Sandbox {
				return sandbox(t, func(s *v1alpha1.Sandbox) {
					if s.Spec.Template = nil; template != "" {
						s.Spec.Template = rawJSON(template)
					}
				})
			}
			if got := ChangesPod(with(test.to), with(test.from)); got != test.want {
				t.Errorf("got %t", got)
			}
			if got := ChangesPod(with(test.from), with(test.to)); got != test.want {
				t.Errorf("the other way round: got %t", got)
			}
		})
	}
}
