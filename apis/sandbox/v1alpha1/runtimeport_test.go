// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestIsClosedRuntimePort(t *testing.T) {
	initialized := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: SandboxConditionRuntimeInitialized, Status: status}}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		conditions  []metav1.Condition
		port        int
		want        bool
	}{
		"has no runtime":      {nil, nil, DefaultRuntimePort, false},
		"is initialized":      {nil, initialized(metav1.ConditionTrue), DefaultRuntimePort, false},
		"is not":              {nil, initialized(metav1.ConditionFalse), DefaultRuntimePort, true},
		"another port":        {nil, initialized(metav1.ConditionFalse), 8080, false},
		"of its URL":          {map[string]string{AnnotationRuntimeURL: "http://10.0.0.1:8080"}, initialized(metav1.ConditionFalse), 8080, true},
		"of its scheme":       {map[string]string{AnnotationRuntimeURL: "http://10.0.0.1"}, initialized(metav1.ConditionFalse), 80, true},
		"beside its URL":      {map[string]string{AnnotationRuntimeURL: "http://10.0.0.1:8080"}, initialized(metav1.ConditionFalse), 8081, false},
		"of envd's URL":       {map[string]string{AnnotationE2BEnvdURL: "https://box:8443/envd"}, initialized(metav1.ConditionFalse), 8443, true},
		"a URL that is wrong": {map[string]string{AnnotationRuntimeURL: "http://%zz"}, initialized(metav1.ConditionFalse), 8080, false},
		"of TLS":              {map[string]string{AnnotationRuntimeTLSPort: "8443"}, initialized(metav1.ConditionFalse), 8443, true},
		"of TLS, with a zero": {map[string]string{AnnotationRuntimeTLSPort: "08443"}, initialized(metav1.ConditionFalse), 8443, true},
	} {
		sandbox := &Sandbox{}
		sandbox.Annotations, sandbox.Status.Conditions = test.annotations, test.conditions
		if got := IsClosedRuntimePort(sandbox, test.port); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	sandbox := &Sandbox{}
	sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"metadata":{"annotations":{"` + AnnotationRuntimeTLSPort + `":"8443"}}}`)}
	sandbox.Status.Conditions = initialized(metav1.ConditionFalse)
	if !IsClosedRuntimePort(sandbox, 8443) || IsClosedRuntimePort(sandbox, 8444) {
		t.Error("the port of TLS in the template is open")
	}
}

func TestRuntimeProbePath(t *testing.T) {
	const url = "http://10.0.0.1:8080/base/"
	for name, test := range map[string]struct {
		annotations map[string]string
		condition   metav1.ConditionStatus
		port        int
		want        string
	}{
		"has no runtime":         {nil, "", DefaultRuntimePort, ""},
		"is initialized":         {nil, metav1.ConditionTrue, DefaultRuntimePort, "/envs"},
		"has a token of a pool":  {map[string]string{AnnotationRuntimeTokenID: "id"}, "", DefaultRuntimePort, "/envs"},
		"is not initialized yet": {nil, metav1.ConditionFalse, DefaultRuntimePort, ""},
		"another port":           {nil, metav1.ConditionTrue, 8080, ""},
		"of its URL":             {map[string]string{AnnotationRuntimeURL: url}, metav1.ConditionTrue, 8080, "/base/envs"},
		"beside its URL":         {map[string]string{AnnotationRuntimeURL: url}, metav1.ConditionTrue, 8081, ""},
		"the default with a URL": {map[string]string{AnnotationRuntimeURL: url}, metav1.ConditionTrue, DefaultRuntimePort, "/envs"},
		"of envd's URL":          {map[string]string{AnnotationE2BEnvdURL: "http://10.0.0.1:8080"}, metav1.ConditionTrue, 8080, "/envs"},
	} {
		sandbox := &Sandbox{}
		sandbox.Annotations = test.annotations
		if test.condition != "" {
			sandbox.Status.Conditions = []metav1.Condition{{Type: SandboxConditionRuntimeInitialized, Status: test.condition}}
		}
		if got := RuntimeProbePath(sandbox, test.port); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
