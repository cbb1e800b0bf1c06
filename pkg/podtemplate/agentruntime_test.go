// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestCacheBringsAgentRuntime: a Cache says of each template what the function says, and reads it once.
func TestCacheBringsAgentRuntime(t *testing.T) {
	cache := NewCache()
	for _, raw := range []string{
		`{"spec":{"initContainers":[{"name":"runtime"}]}}`, `{"spec":{"initContainers":[{"name":"other"}]}}`, `[]`,
	} {
		template := &runtime.RawExtension{Raw: []byte(raw)}
		want := BringsAgentRuntime(template)
		for range 2 {
			if got := cache.BringsAgentRuntime(template); got != want {
				t.Errorf("%s: %v", raw, got)
			}
		}
	}
	if got := cache.BringsAgentRuntime(nil); got {
		t.Error("no template brings one")
	}
	template := &runtime.RawExtension{Raw: []byte(`{"spec":{"initContainers":[{"name":"runtime"}]}}`)}
	if n := testing.AllocsPerRun(100, func() { cache.BringsAgentRuntime(template) }); n > 2 {
		t.Errorf("%v allocations for a template that was read", n)
	}
}

// TestAgentRuntimeLabel: the pod says whether it has an agent-runtime, whatever its template
// says of that.
func TestAgentRuntimeLabel(t *testing.T) {
	const without = `{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`
	for name, test := range map[string]struct {
		template string
		runtimes []v1alpha1.RuntimeConfig
		want     string
	}{
		"none":                    {template: without},
		"named":                   {template: without, runtimes: []v1alpha1.RuntimeConfig{{Name: "csi"}, {Name: "agent-runtime"}}, want: "true"},
		"another runtime":         {template: without, runtimes: []v1alpha1.RuntimeConfig{{Name: "csi"}}},
		"in the template":         {template: `{"spec":{"initContainers":[{"name":"runtime"}],"containers":[{"name":"main"}]}}`, want: "true"},
		"the template says true":  {template: `{"metadata":{"labels":{"sandlot.io/agent-runtime":"true"}},"spec":{"containers":[{"name":"main"}]}}`},
		"the template says false": {template: `{"metadata":{"labels":{"sandlot.io/agent-runtime":"false"}},"spec":{"initContainers":[{"name":"runtime"}],"containers":[{"name":"main"}]}}`, want: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", UID: "u"}}
			sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(test.template)}
			sandbox.Spec.Runtimes = test.runtimes
			pod, err := Pod(sandbox, "r")
			if err != nil {
				t.Fatal(err)
			}
			if got := pod.GetLabels()[v1alpha1.LabelAgentRuntime]; got != test.want {
				t.Errorf("the label is %q, want %q", got, test.want)
			}
		})
	}
}
