// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

func parse(t *testing.T, text string) *podtemplate.Runtime {
	t.Helper()
	runtime, err := podtemplate.ParseRuntime(text)
	if err != nil {
		t.Fatal(err)
	}
	return runtime
}

const (
	agent = `
mainContainer:
  env: [{name: AGENT, value: "1"}]
  volumeMounts: [{name: tools, mountPath: /tools}]
spec:
  initContainers:
  - {name: agent, image: "agent:1", restartPolicy: Always, ports: [{containerPort: 49983}]}
  volumes: [{name: tools, emptyDir: {}}]
`
	proxy = `
mainContainer:
  env: [{name: PROXY, value: "localhost:1"}]
spec:
  containers: [{name: proxy, image: "proxy:1"}]
`
)

func TestInject(t *testing.T) {
	const mine = `{"spec":{"containers":[{"name":"main","image":"i","env":[{"name":"A","value":"a"}],"future":9007199254740993},{"name":"second","image":"j"}]}}`
	tests := map[string]struct {
		template string
		runtimes []string
		want     string
	}{
		"none": {template: mine, want: mine},
		"beside": {
			template: mine, runtimes: []string{agent},
			want: `{"spec":{"containers":[{"name":"main","image":"i","env":[{"name":"AGENT","value":"1"},{"name":"A","value":"a"}],
				"future":9007199254740993,"volumeMounts":[{"name":"tools","mountPath":"/tools"}]},{"name":"second","image":"j"}],
				"initContainers":[{"name":"agent","image":"agent:1","restartPolicy":"Always","ports":[{"containerPort":49983}]}],
				"volumes":[{"name":"tools","emptyDir":{}}]}}`,
		},
		"one after the other, and the first container stays the template's": {
			template: mine, runtimes: []string{proxy, agent},
			want: `{"spec":{"containers":[{"name":"main","image":"i","env":[{"name":"AGENT","value":"1"},{"name":"PROXY","value":"localhost:1"},{"name":"A","value":"a"}],
				"future":9007199254740993,"volumeMounts":[{"name":"tools","mountPath":"/tools"}]},{"name":"second","image":"j"},{"name":"proxy","image":"proxy:1"}],
				"initContainers":[{"name":"agent","image":"agent:1","restartPolicy":"Always","ports":[{"containerPort":49983}]}],
				"volumes":[{"name":"tools","emptyDir":{}}]}}`,
		},
		"the later one wins": {
			template: mine, runtimes: []string{"{mainContainer: {env: [{name: A, value: b}]}}", "{mainContainer: {env: [{name: A, value: c}]}}"},
			want: strings.Replace(mine, `"value":"a"`, `"value":"c"`, 1),
		},
		"init containers before the template's": {
			template: `{"spec":{"containers":[{"name":"main"}],"initContainers":[{"name":"load"},{"name":"b-init"}]}}`,
			runtimes: []string{
				"{spec: {containers: [{name: a}, {name: a2}], initContainers: [{name: a-init}]}}",
				"{spec: {containers: [{name: b}, {name: main, image: x}], initContainers: [{name: b-init, image: new}, {name: b-more}]}}",
			},
			want: `{"spec":{"containers":[{"name":"main","image":"x"},{"name":"a"},{"name":"a2"},{"name":"b"}],
				"initContainers":[{"name":"a-init"},{"name":"b-more"},{"name":"load"},{"name":"b-init","image":"new"}]}}`,
		},
		"a directive": {
			template: mine, runtimes: []string{"{mainContainer: {env: [{name: A, $patch: delete}]}}"},
			want: strings.Replace(mine, `{"name":"A","value":"a"}`, "", 1),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var runtimes []*podtemplate.Runtime
			for _, text := range test.runtimes {
				runtimes = append(runtimes, parse(t, text))
			}
			template := rawOf(test.template)
			for range 2 { // a merge must not change the runtimes
				got, err := podtemplate.Inject(template, runtimes...)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(decoded(t, test.want), decoded(t, string(got.Raw))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if string(template.Raw) != test.template {
				t.Errorf("the template has become %s", template.Raw)
			}
		})
	}
}

func TestRuntimeRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "not a JSON object",
		"[]":                                    "not a JSON object",
		"spec: {a: [":                           "yaml",
		"{spec: {}, spec: {}}":                  "already set",
		"{spec: [x]}":                           "spec: not a JSON object",
		"{mainContainer: []}":                   "mainContainer: not a JSON object",
		"{mainContainer: {name: x}}":            "mainContainer: its name is the template's",
		"{initContainers: [{name: x}]}":         `unknown key "initContainers"`,
		"{apiVersion: v1, kind: Pod, spec: {}}": "unknown key",
	} {
		if runtime, err := podtemplate.ParseRuntime(text); !errors.Is(err, podtemplate.ErrRuntime) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, error %v; want %q", text, runtime, err, want)
		}
	}
	// What a strategic merge cannot apply is found when there is a template.
	for _, text := range []string{"{spec: {containers: [{image: x}]}}", "{spec: {containers: [{name: [a]}]}}", "{metadata: {labels: {a: true}}}"} {
		if got, err := podtemplate.Inject(rawOf(plain), parse(t, text)); !errors.Is(err, podtemplate.ErrRuntime) {
			t.Errorf("%s: %v, error %v", text, got, err)
		}
	}
	if _, err := podtemplate.Inject(rawOf(`[]`), parse(t, "{}")); !errors.Is(err, podtemplate.ErrRuntime) {
		t.Errorf("a template that is a list: %v", err)
	}
}
