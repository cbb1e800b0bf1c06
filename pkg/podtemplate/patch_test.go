// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

func rawOf(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func decoded(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func TestApplyPatch(t *testing.T) {
	spec := func(fields string) string { return `{"spec":{` + fields + `}}` }
	tests := map[string]struct{ template, patch, want string }{
		"nothing": {spec(oneContainer), `{}`, spec(oneContainer)},
		"adds what is not there": {
			spec(oneContainer), `{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"x":"y"}}}`,
			`{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"x":"y"},` + oneContainer + `}}`,
		},
		"maps are merged": {
			`{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{}}`, `{"metadata":{"labels":{"b":"3","c":"4"}}}`,
			`{"metadata":{"labels":{"a":"1","b":"3","c":"4"}},"spec":{}}`,
		},
		"null deletes": {
			`{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"hostname":"h","nodeSelector":{"x":"y"}}}`,
			`{"metadata":{"labels":{"a":null,"z":null}},"spec":{"hostname":null,"nodeSelector":null,"absent":null}}`,
			`{"metadata":{"labels":{"b":"2"}},"spec":{}}`,
		},
		"null inside what is new": {
			spec(`"a":1`), spec(`"affinity":{"nodeAffinity":null,"podAffinity":{"x":1}}`), spec(`"a":1,"affinity":{"podAffinity":{"x":1}}`),
		},
		"no containers": {spec(oneContainer), `{"spec":{"containers":null}}`, `{"spec":{}}`},
		"containers merge by name": {
			spec(`"containers":[{"name":"a","image":"1"},{"name":"b","image":"2","env":[{"name":"E","value":"1"},{"name":"F","value":"2"}]}]`),
			spec(`"containers":[{"name":"b","env":[{"name":"E","value":"3"},{"name":"G","value":"4"}]}]`),
			spec(`"containers":[{"name":"a","image":"1"},{"name":"b","image":"2","env":[{"name":"E","value":"3"},{"name":"G","value":"4"},{"name":"F","value":"2"}]}]`),
		},
		"a new container": {
			spec(oneContainer), spec(`"containers":[{"name":"side","image":"s"}]`),
			spec(`"containers":[{"name":"side","image":"s"},{"name":"c","image":"i"}]`),
		},
		"resources": {
			spec(`"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"4","memory":"8Gi"},"requests":{"cpu":4}}}]`),
			spec(`"containers":[{"name":"c","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"500m"}}}]`),
			spec(`"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"2","memory":"8Gi"},"requests":{"cpu":"500m"}}}]`),
		},
		"ports by number, volumes by name, mounts by path": {
			spec(`"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"c","ports":[{"containerPort":80,"name":"a"}],"volumeMounts":[{"mountPath":"/v","name":"v"}]}]`),
			spec(`"volumes":[{"name":"w","emptyDir":{}}],"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"UDP"}],"volumeMounts":[{"mountPath":"/v","name":"w"}]}]`),
			spec(`"volumes":[{"name":"w","emptyDir":{}},{"name":"v","emptyDir":{}}],"containers":[{"name":"c","ports":[{"containerPort":80,"name":"a","protocol":"UDP"}],"volumeMounts":[{"mountPath":"/v","name":"w"}]}]`),
		},
		"pull secrets by name, tolerations as a whole, args as a whole": {
			spec(`"imagePullSecrets":[{"name":"a"}],"tolerations":[{"key":"a"}],"containers":[{"name":"c","args":["1","2"]}]`),
			spec(`"imagePullSecrets":[{"name":"b"}],"tolerations":[{"key":"b"}],"containers":[{"name":"c","args":["3"]}]`),
			spec(`"imagePullSecrets":[{"name":"b"},{"name":"a"}],"tolerations":[{"key":"b"}],"containers":[{"name":"c","args":["3"]}]`),
		},
		"node affinity": {
			spec(`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[]}]}}}`),
			spec(`"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{}}]}}`),
			spec(`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[]}]},"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{}}]}}`),
		},
		"$patch delete of an element": {
			spec(`"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]`), spec(`"containers":[{"name":"b","$patch":"delete"},{"name":"absent","$patch":"delete"}]`),
			spec(`"containers":[{"name":"a"},{"name":"c"}]`),
		},
		"$patch replace of a list": {
			spec(`"containers":[{"name":"a"},{"name":"b"}]`), spec(`"containers":[{"$patch":"replace"},{"name":"z","image":"i"}]`),
			spec(`"containers":[{"name":"z","image":"i"}]`),
		},
		"$patch replace of a map": {
			spec(`"securityContext":{"runAsUser":1,"fsGroup":2}`), spec(`"securityContext":{"$patch":"replace","runAsUser":3}`), spec(`"securityContext":{"runAsUser":3}`),
		},
		"$patch delete of a map": {
			spec(`"securityContext":{"runAsUser":1},"hostname":"h"`), spec(`"securityContext":{"$patch":"delete"}`), spec(`"securityContext":{},"hostname":"h"`),
		},
		"$patch replace of everything": {spec(oneContainer), `{"$patch":"replace","spec":{"hostname":"h"}}`, spec(`"hostname":"h"`)},
		"$setElementOrder": {
			spec(`"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]`),
			spec(`"$setElementOrder/containers":[{"name":"c"},{"name":"a"},{"name":"b"}],"containers":[{"name":"a","image":"i"}]`),
			spec(`"containers":[{"name":"c"},{"name":"a","image":"i"},{"name":"b"}]`),
		},
		"$retainKeys": {
			spec(`"volumes":[{"name":"v","emptyDir":{}}]`), spec(`"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]`),
			spec(`"volumes":[{"name":"v","hostPath":{"path":"/x"}}]`),
		},
		"$deleteFromPrimitiveList": {
			`{"metadata":{"finalizers":["a","b","c"]},"spec":{}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["b","z"]}}`,
			`{"metadata":{"finalizers":["a","c"]},"spec":{}}`,
		},
		"primitive lists merge": {
			`{"metadata":{"finalizers":["a"]},"spec":{}}`, `{"metadata":{"finalizers":["b","a"]}}`, `{"metadata":{"finalizers":["b","a"]},"spec":{}}`,
		},
		"directives in what is new": {
			spec(`"a":1`), spec(`"securityContext":{"$retainKeys":["runAsUser"],"runAsUser":1},"$setElementOrder/containers":[{"name":"y"}],"$deleteFromPrimitiveList/x":["a"],"containers":[{"name":"x","$patch":"delete"},{"name":"y","$setElementOrder/env":[{"name":"E"}],"$retainKeys":["name"]}]`),
			spec(`"a":1,"securityContext":{"runAsUser":1},"containers":[{"name":"y"}]`),
		},
		"integers stay exact": {
			spec(`"a":9007199254740993,"securityContext":{"runAsUser":9007199254740993,"f":1.5}`), spec(`"b":9223372036854775807,"securityContext":{"fsGroup":9007199254740995}`),
			spec(`"a":9007199254740993,"b":9223372036854775807,"securityContext":{"runAsUser":9007199254740993,"fsGroup":9007199254740995,"f":1.5}`),
		},
		"unknown fields are kept": {
			spec(`"future":{"deep":[1,{"x":null}]},"containers":[{"name":"c","newField":true}]`), spec(`"containers":[{"name":"c","image":"i"}]`),
			spec(`"future":{"deep":[1,{"x":null}]},"containers":[{"name":"c","newField":true,"image":"i"}]`),
		},
		"unknown fields are patched: maps merged, lists replaced": {
			spec(`"future":{"a":{"x":1,"y":2},"list":[1,2],"maps":[{"name":"a"}]},"gone":{"a":1}`), spec(`"future":{"a":{"y":null,"z":3},"list":[3],"maps":[{"name":"b"}]},"gone":null`),
			spec(`"future":{"a":{"x":1,"z":3},"list":[3],"maps":[{"name":"b"}]}`),
		},
		"unknown at the top": {`{"spec":{},"status":{"a":1}}`, `{"status":{"b":2}}`, `{"spec":{},"status":{"a":1,"b":2}}`},
		"another type":       {spec(`"hostname":{"a":1}`), spec(`"hostname":"h"`), spec(`"hostname":"h"`)},
		"empty lists":        {spec(`"containers":[]`), spec(`"containers":[]`), spec(`"containers":[]`)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			template, patch := rawOf(test.template), rawOf(test.patch)
			got, err := podtemplate.ApplyPatch(template, patch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, test.want), decoded(t, string(got.Raw))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if string(template.Raw) != test.template || string(patch.Raw) != test.patch {
				t.Error("what was given has changed")
			}
		})
	}
}

func TestApplyPatchRefusals(t *testing.T) {
	const template = `{"metadata":{"finalizers":["a"]},"spec":{"volumes":[{"name":"v","emptyDir":{}}],` + oneContainer + `}}`
	for name, patch := range map[string]string{
		"no JSON":                     `{`,
		"null":                        `null`,
		"a list":                      `[]`,
		"a string":                    `"x"`,
		"no merge key":                `{"spec":{"containers":[{"image":"i"}]}}`,
		"merge key of another type":   `{"spec":{"containers":[{"name":{"a":1},"image":"i"}]}}`,
		"two lists for merge keys":    `{"spec":{"$setElementOrder/containers":[{"name":[1]}],"containers":[{"name":[1]}]}}`,
		"a scalar in a list of maps":  `{"spec":{"containers":["c"]}}`,
		"null in a list of maps":      `{"spec":{"containers":[null]}}`,
		"a list in a list of maps":    `{"spec":{"containers":[[]]}}`,
		"unknown directive":           `{"spec":{"$patch":"frob"}}`,
		"unknown directive in a list": `{"spec":{"containers":[{"name":"c","$patch":"frob"}]}}`,
		"$patch merge in a list":      `{"spec":{"containers":[{"name":"c","$patch":"merge"}]}}`,
		"delete without merge key":    `{"spec":{"containers":[{"$patch":"delete"}]}}`,
		"order that is no list":       `{"spec":{"$setElementOrder/containers":1,"containers":[{"name":"c"}]}}`,
		"order that does not fit":     `{"spec":{"$setElementOrder/containers":[{"name":"x"}],"containers":[{"name":"c"}]}}`,
		"order without merge key":     `{"spec":{"$setElementOrder/containers":[{"x":1}],"containers":[{"name":"c"}]}}`,
		"order of nothing":            `{"spec":{"$setElementOrder":[{"name":"x"}]}}`,
		"deletion that is no list":    `{"metadata":{"$deleteFromPrimitiveList":["a"]}}`,
		"retained keys are no list":   `{"spec":{"volumes":[{"name":"v","$retainKeys":1}]}}`,
		"retained keys are no names":  `{"spec":{"volumes":[{"name":"v","$retainKeys":[{"a":1}]}]}}`,
		"retained keys leave one out": `{"spec":{"volumes":[{"name":"v","$retainKeys":["name"],"hostPath":{}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := podtemplate.ApplyPatch(rawOf(template), rawOf(patch))
			if !errors.Is(err, podtemplate.ErrPatch) {
				t.Errorf("got %v, error %v", got, err)
			}
		})
	}
	if _, err := podtemplate.ApplyPatch(rawOf(`[]`), rawOf(`{}`)); !errors.Is(err, podtemplate.ErrPatch) {
		t.Errorf("a template that is a list: %v", err)
	}
	if _, err := podtemplate.ApplyPatch(rawOf(template), nil); !errors.Is(err, podtemplate.ErrPatch) {
		t.Errorf("no patch: %v", err)
	}
}

// Errors are shown in conditions and events, which more may read than templates.
func TestApplyPatchErrorsHaveNoValues(t *testing.T) {
	const template = `{"spec":{` + oneContainer + `}}`
	for name, patch := range map[string]string{
		"no merge key":      `{"spec":{"containers":[{"env":[{"name":"TOKEN","value":"hunter2"}]}]}}`,
		"key in the value":  `{"spec":{"containers":[{"env":[{"value":"x does not contain declared merge key: hunter2"}]}]}}`,
		"unknown directive": `{"spec":{"containers":[{"name":"c","$patch":"hunter2","env":[{"name":"TOKEN","value":"hunter2"}]}]}}`,
		"order":             `{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"b","image":"hunter2"},{"name":"a","image":"hunter2"}]}}`,
		"types":             `{"spec":{"containers":["hunter2"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := podtemplate.ApplyPatch(rawOf(template), rawOf(patch))
			if !errors.Is(err, podtemplate.ErrPatch) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v", err)
			}
			t.Log(err)
		})
	}
}

// Whatever the patch, there is a template or an error, and never a panic.
func FuzzApplyPatch(f *testing.F) {
	for _, patch := range []string{
		`{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`,
		`{"spec":{"volumes":[{"name":"v","$retainKeys":[{}]}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":[]}],"containers":[{"name":{}}]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":[{}]}}`,
	} {
		f.Add([]byte(`{"metadata":{"finalizers":["a"]},"spec":{"volumes":[{"name":"v"}],"containers":[{"name":"c"}]}}`), []byte(patch))
	}
	f.Fuzz(func(t *testing.T, template, patch []byte) {
		got, err := podtemplate.ApplyPatch(&runtime.RawExtension{Raw: template}, &runtime.RawExtension{Raw: patch})
		if err != nil && !errors.Is(err, podtemplate.ErrPatch) {
			t.Errorf("error %v", err)
		}
		if err == nil {
			decoded(t, string(got.Raw))
		}
	})
}

// What a patch may cost is bounded before any of it is merged, also for a template of the
// cluster, which no store of ours has checked.
func TestApplyPatchRefusesLongLists(t *testing.T) {
	variables := func(n int) string {
		all := make([]string, 0, n)
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"a%d"}`, i))
		}
		return `{"spec":{"containers":[{"name":"c","env":[` + strings.Join(all, ",") + `]}]}}`
	}
	before := podtemplate.Patched()
	for _, at := range []struct{ template, patch, want string }{
		{variables(257), variables(1), "template.spec.containers[0].env: Too many"},
		{variables(1), variables(257), "patch.spec.containers[0].env: Too many"},
	} {
		_, err := podtemplate.ApplyPatch(rawOf(at.template), rawOf(at.patch))
		if !errors.Is(err, podtemplate.ErrPatch) || !strings.Contains(err.Error(), at.want) {
			t.Errorf("error %v, want %s", err, at.want)
		}
	}
	if got := podtemplate.Patched() - before; got != 0 {
		t.Errorf("%d merged", got)
	}
	if _, err := podtemplate.ApplyPatch(rawOf(variables(256)), rawOf(variables(256))); err != nil {
		t.Error(err)
	}
}

// A request that is over merges nothing more.
func TestResolveStopsWithItsRequest(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	set := setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef, s.Spec.Patch = to("inline"), rawOf("{}") })
	cache, before := podtemplate.NewCache(), podtemplate.Patched()
	if _, err := cache.ResolveSet(gone, set, newWorld()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := podtemplate.Patched() - before; got != 0 {
		t.Errorf("%d patches", got)
	}
	if _, err := cache.ResolveSet(t.Context(), set, newWorld()); err != nil {
		t.Errorf("the next request: %v", err) // which is not notified of that
	}
}

// A patch that names a container which is not there would add one without an image.
func TestPatchOfUnknownContainer(t *testing.T) {
	const template = `{"spec":{"initContainers":[{"name":"load","image":"l"}],"containers":[{"name":"main","image":"m"},{"name":"side","image":"s"}]}}`
	const needs = "; one that is added needs an image"
	long := strings.Repeat("x", 500)
	tests := map[string]struct{ patch, want string }{
		"misspelt": {
			`{"spec":{"containers":[{"name":"mian","env":[{"name":"A","value":"hidden"}]}]}}`,
			`it names container "mian", which spec.containers of the template does not have (there are main, side)` + needs,
		},
		"misspelt init container": {
			`{"spec":{"initContainers":[{"name":"main","env":[]}]}}`,
			`it names container "main", which spec.initContainers of the template does not have (there is load)` + needs,
		},
		"long":           {`{"spec":{"containers":[{"name":"` + long + `"}]}}`, `it names container "` + long[:63] + `...", which`},
		"empty image":    {`{"spec":{"containers":[{"name":"more","image":""}]}}`, `it names container "more"`},
		"added":          {`{"spec":{"containers":[{"name":"more","image":"x"}]}}`, ""},
		"changed":        {`{"spec":{"containers":[{"name":"side","env":[]}]}}`, ""},
		"taken away":     {`{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}`, ""},
		"not there, too": {`{"spec":{"containers":[{"name":"none","$patch":"delete"}]}}`, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := podtemplate.ApplyPatch(rawOf(template), rawOf(tc.patch))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (!errors.Is(err, podtemplate.ErrPatch) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			case err != nil && strings.Contains(err.Error(), "hidden"):
				t.Errorf("%v says what is in the patch", err)
			}
		})
	}
}
