// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
)

// tree reads YAML.
func tree(t *testing.T, text string) *mapping {
	t.Helper()
	var document yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return decode(document.Content[0]).(*mapping)
}

// TestMerge: what a choice adds, removes and changes is there under its condition, and lists
// keep the order that they have with each choice.
func TestMerge(t *testing.T) {
	base := "kind: A\nargs: [--a=1, --b=2]\nitems: [{name: x, size: 1}]\nold: true\n"
	for name, tc := range map[string]struct {
		variants map[string]string // by condition: a, b or c
		want     string
	}{
		"nothing": {want: `
kind: A
args:
- --a=1
- --b=2
items:
- name: x
  size: 1
old: true
`},
		"added and removed": {
			variants: map[string]string{"a": "kind: A\nargs: [--a=1, --b=2, --c=3]\nitems: [{name: x, size: 1, more: y}, {name: z}]\nnew: {k: v}\n"},
			want: `
kind: A
args:
- --a=1
- --b=2
{{- if a }}
- --c=3
{{- end }}
items:
- name: x
  size: 1
  {{- if a }}
  more: "y"
  {{- end }}
{{- if a }}
- name: z
{{- end }}
{{- if not a }}
old: true
{{- end }}
{{- if a }}
new:
  k: v
{{- end }}
`},
		"changed by some": {
			variants: map[string]string{
				"a": "kind: B\nargs: [--a=1, --b=3]\nitems: [{name: x, size: 1}]\nold: true\n",
				"b": "kind: B\nargs: [--a=1, --b=2]\nitems: [{name: x, size: 2}]\nold: true\n",
				"c": "kind: C\nargs: [--a=1, --b=2]\nitems: [{name: x, size: 1}]\nold: true\n",
			},
			want: `
{{- if or a b }}
kind: B
{{- else if c }}
kind: C
{{- else }}
kind: A
{{- end }}
args:
- --a=1
{{- if a }}
- --b=3
{{- else }}
- --b=2
{{- end }}
items:
- name: x
  {{- if b }}
  size: 2
  {{- else }}
  size: 1
  {{- end }}
old: true
`},
		"items without a name": {
			variants: map[string]string{
				"a": "kind: A\nargs: [--a=1, --b=2]\nitems: [{name: x, size: 1}]\nold: true\nrules: [{ports: [{port: 1}]}, {ports: [{port: 2}]}]\n",
				"b": "kind: A\nargs: [--a=1, --b=2]\nitems: [{name: x, size: 1}]\nold: true\nrules: [{ports: [{port: 1}]}]\n",
			},
			want: `
kind: A
args:
- --a=1
- --b=2
items:
- name: x
  size: 1
old: true
{{- if or a b }}
rules:
- ports:
  - port: 1
{{- if not b }}
- ports:
  - port: 2
{{- end }}
{{- end }}
`},
		"the same from two, in another order": {
			variants: map[string]string{
				"a": "kind: A\nargs: [--a=1, --b=2, --s=1, --t=1]\nitems: [{name: x, size: 1}]\nold: true\n",
				"b": "kind: A\nargs: [--a=1, --b=2, --s=1, --p=1, --t=1]\nitems: [{name: x, size: 1}]\nold: true\n",
			},
			want: `
kind: A
args:
- --a=1
- --b=2
{{- if or a b }}
- --s=1
{{- end }}
{{- if b }}
- --p=1
{{- end }}
{{- if or a b }}
- --t=1
{{- end }}
items:
- name: x
  size: 1
old: true
`},
	} {
		t.Run(name, func(t *testing.T) {
			var variants []variant
			for _, condition := range []string{"a", "b", "c"} {
				if text, ok := tc.variants[condition]; ok {
					variants = append(variants, variant{&choice{condition: condition}, tree(t, text)})
				}
			}
			w := &writer{}
			w.entries(merge("", tree(t, base), variants).value.(entries), 0)
			if got := "\n" + w.String(); got != tc.want {
				t.Errorf("got:%s\nwant:%s", got, tc.want)
			}
		})
	}
}

// TestValues: an override is there whether or not the install has something in its place, and
// what looks like a template stays text.
func TestValues(t *testing.T) {
	m := tree(t, "replicas: 2\nuser: 7\nmessage: '{{ $labels.x }} in "+moved+"'\n")
	overriddenScalar(m, "replicas", ".r")
	overridden(m, "tolerations", ".t")
	m.set("user", conditional{".fixed", m.get("user")})
	m.add("args", appended(".args"))
	w := &writer{}
	w.entries(merge("", m, nil).value.(entries), 2)
	want := `  {{- with .r }}
  replicas: {{ toYaml . }}
  {{- else }}
  replicas: 2
  {{- end }}
  {{- if .fixed }}
  user: 7
  {{- end }}
  message: '{{ "{{" }} $labels.x }} in {{ .Release.Namespace }}'
  {{- with .t }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  args:
  {{- with .args }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
`
	if got := w.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestUnknownWorkload: what runs without values that are for it would not get the secrets to
// pull images with, for one.
func TestUnknownWorkload(t *testing.T) {
	err := editObject(tree(t, "kind: Deployment\nmetadata: {name: sandlot-new}\nspec: {}\n"))
	if err == nil || !strings.Contains(err.Error(), "sandlot-new has no values") {
		t.Errorf("got %v", err)
	}
}

// TestEveryValueIsUsed: none is taken and ignored. A map or an image may be used whole.
func TestEveryValueIsUsed(t *testing.T) {
	chart := filepath.Join("..", "..", "artifacts", "deploy", "chart", "sandlot")
	var templates strings.Builder
	err := filepath.WalkDir(filepath.Join(chart, "templates"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".txt" {
			return err
		}
		text, err := os.ReadFile(path)
		templates.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	used := func(path string) bool {
		for _, end := range " )}|" {
			if strings.Contains(templates.String(), path+string(end)) {
				return true
			}
		}
		return false
	}
	var walk func(path string, m *mapping)
	walk = func(path string, m *mapping) {
		for _, key := range m.keys {
			below := path + "." + key
			if child := m.at(key); child != nil && len(child.keys) > 0 && !used(below) {
				walk(below, child)
				continue
			}
			if n++; !used(below) {
				t.Errorf("no template uses %s", below)
			}
		}
	}
	walk(".Values", tree(t, string(values)))
	if n < 60 {
		t.Errorf("there are %d values", n)
	}
}

// TestConditions: an install has exactly one store, so that what all of them have has no
// condition, and what all but one have is what that one has not.
func TestConditions(t *testing.T) {
	of := func(facts ...string) (found []*choice) {
		for _, c := range stores {
			if !slices.ContainsFunc(facts, func(fact string) bool { return !slices.Contains(c.facts, fact) }) {
				found = append(found, c)
			}
		}
		return found
	}
	free := &choice{condition: ".free"}
	for name, tc := range map[string]struct{ got, want string }{
		"one fact":                   {whereAny(of("cluster")), `eq .Values.etcd.mode "cluster"`},
		"two facts":                  {whereAny(of("cluster", "backup")), `and (include "sandlot.backup" .) (eq .Values.etcd.mode "cluster")`},
		"one of two facts":           {whereAny(slices.Concat(of("cluster"), of("external"))), `not (eq .Values.etcd.mode "embedded")`},
		"all":                        {whereAny(stores), ""},
		"all, or something free":     {whereAny(append(slices.Clone(stores), free)), ""},
		"a fact, or something free":  {whereAny(append(of("external"), free)), `or (eq .Values.etcd.mode "external") .free`},
		"not a fact":                 {whereNone(of("cluster")), `not (eq .Values.etcd.mode "cluster")`},
		"no store":                   {whereNone(stores), "false"},
		"not a fact, nor free":       {whereNone(append(of("small"), free)), `and (not (eq .Values.profile "small")) (not .free)`},
		"not what is free":           {whereNone([]*choice{free}), "not .free"},
		"two conditions":             {and(".a", ""), ".a"},
		"an expression, and another": {and("eq .a 1", ".b"), "and (eq .a 1) .b"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %s, want %s", name, tc.got, tc.want)
		}
	}
}
