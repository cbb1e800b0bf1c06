// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	disallow  = v1alpha1.InjectionDisallowed
	allow     = v1alpha1.InjectionAllowed
	overrides = v1alpha1.InjectionOverrides
)

func TestInjectEnv(t *testing.T) {
	const template = `{"metadata":{"labels":{"a":"b"}},"spec":{"n":9007199254740993,
		"initContainers":[{"name":"init"}],
		"containers":[
			{"name":"main","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"B","value":"b"}]},
			{"name":"side","envFrom":[{"secretRef":{"name":"s"}}]}]}}`
	variable := func(name, container string) v1alpha1.SandboxClaimEnvVar {
		return v1alpha1.SandboxClaimEnvVar{Name: name, Value: "hidden", ContainerName: container}
	}
	tests := map[string]struct {
		policy     v1alpha1.InjectionPolicy
		containers v1alpha1.InjectionContainers
		env        []v1alpha1.SandboxClaimEnvVar
		// changes are replacements in template.
		changes []string
		refused []string
	}{
		"nothing to inject":          {policy: disallow},
		"no policy":                  {env: []v1alpha1.SandboxClaimEnvVar{variable("C", "")}, refused: []string{"spec.env: Forbidden: not allowed by the template policy: envVarsInjectionPolicy is Disallowed"}},
		"disallowed":                 {policy: disallow, env: []v1alpha1.SandboxClaimEnvVar{variable("C", "")}, refused: []string{"spec.env: Forbidden: not allowed by the template policy"}},
		"a policy of a newer server": {policy: "Other", env: []v1alpha1.SandboxClaimEnvVar{variable("C", "")}, refused: []string{"spec.env: Forbidden: not allowed by the template policy"}},
		"the first container, and an init container by name": {
			policy: allow, env: []v1alpha1.SandboxClaimEnvVar{variable("C", ""), variable("A", "init"), variable("D", "main")},
			changes: []string{
				`{"name":"B","value":"b"}`, `{"name":"B","value":"b"},{"name":"C","value":"hidden"},{"name":"D","value":"hidden"}`,
				`{"name":"init"}`, `{"name":"init","env":[{"name":"A","value":"hidden"}]}`,
			},
		},
		"an empty value is one": {
			policy: allow, env: []v1alpha1.SandboxClaimEnvVar{{Name: "C"}},
			changes: []string{`{"name":"B","value":"b"}`, `{"name":"B","value":"b"},{"name":"C","value":""}`},
		},
		"unknown containers": {
			policy: overrides, env: []v1alpha1.SandboxClaimEnvVar{variable("C", ""), variable("C", "other"), variable("D", "none")},
			refused: []string{`spec.env[1].containerName: Not found: "other"`, `spec.env[2].containerName: Not found: "none"`},
		},
		"twice, once by the name of the first container": {
			policy: overrides, env: []v1alpha1.SandboxClaimEnvVar{variable("C", ""), variable("C", "side"), variable("C", "main")},
			refused: []string{`spec.env[2].name: Duplicate value: "C"`},
		},
		"the template has it": {
			policy: allow, env: []v1alpha1.SandboxClaimEnvVar{variable("B", ""), variable("A", "main")},
			refused: []string{"spec.env[0].name: Forbidden: B is a variable of the template", "spec.env[1].name: Forbidden: A is a variable of the template"},
		},
		"the container has envFrom": {
			policy: allow, env: []v1alpha1.SandboxClaimEnvVar{variable("C", "side")},
			refused: []string{"spec.env[0]: Forbidden: container side takes variables from envFrom"},
		},
		"the first container alone, by its name or without": {
			policy: allow, containers: v1alpha1.InjectionContainersFirst, env: []v1alpha1.SandboxClaimEnvVar{variable("C", ""), variable("D", "main")},
			changes: []string{`{"name":"B","value":"b"}`, `{"name":"B","value":"b"},{"name":"C","value":"hidden"},{"name":"D","value":"hidden"}`},
		},
		"no other container": {
			policy: overrides, containers: v1alpha1.InjectionContainersFirst,
			env: []v1alpha1.SandboxClaimEnvVar{variable("C", "side"), variable("C", "init"), variable("C", "none")},
			refused: []string{
				"spec.env[0].containerName: Forbidden: only the first container", "spec.env[1].containerName: Forbidden: only the first container",
				`spec.env[2].containerName: Not found: "none"`,
			},
		},
		"replaced in place, whatever it was": {
			policy: overrides, env: []v1alpha1.SandboxClaimEnvVar{variable("A", ""), variable("C", "side"), variable("D", "")},
			changes: []string{
				`{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}`, `{"name":"A","value":"hidden"}`,
				`{"name":"B","value":"b"}`, `{"name":"B","value":"b"},{"name":"D","value":"hidden"}`,
				`"envFrom":`, `"env":[{"name":"C","value":"hidden"}],"envFrom":`,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			have := &runtime.RawExtension{Raw: []byte(template)}
			got, refused, err := InjectEnv(have, tc.env, &v1alpha1.SandboxTemplateSpec{
				EnvVarsInjectionPolicy: tc.policy, EnvVarsInjectionContainers: tc.containers,
			}, field.NewPath("spec", "env"))
			if err != nil {
				t.Fatal(err)
			}
			expectRefused(t, tc.refused, refused)
			if len(tc.refused) > 0 {
				if got != nil {
					t.Errorf("refused, and made %s", got.Raw)
				}
				return
			}
			want := generic(t, strings.NewReplacer(tc.changes...).Replace(template))
			if diff := cmp.Diff(want, generic(t, string(got.Raw))); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
			if string(have.Raw) != template {
				t.Error("what it was given has changed")
			}
		})
	}
}

// expectRefused compares by prefix, and checks that no value is reported.
func expectRefused(t *testing.T, want []string, got field.ErrorList) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("refused with %v, want %q", got, want)
	}
	for i, err := range got {
		if !strings.HasPrefix(err.Error(), want[i]) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("refused with %q, want %q", err, want[i])
		}
	}
}

func TestInjectEnvReplacesEveryOne(t *testing.T) {
	have := &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B"},{"name":"A","value":"2"}]}]}}`)}
	got, refused, err := InjectEnv(have, []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "3"}}, &v1alpha1.SandboxTemplateSpec{EnvVarsInjectionPolicy: overrides}, field.NewPath("env"))
	if err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	want := `{"spec":{"containers":[{"env":[{"name":"A","value":"3"},{"name":"B"},{"name":"A","value":"3"}]}]}}`
	if string(got.Raw) != want {
		t.Errorf("made %s", got.Raw)
	}
}

func TestInjectEnvIntoWhatIsNoTemplate(t *testing.T) {
	for _, raw := range []string{`[]`, `{}`, `{"spec":7}`, `{"spec":{"containers":["main"]}}`} {
		env := []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "hidden"}}
		if _, _, err := InjectEnv(&runtime.RawExtension{Raw: []byte(raw)}, env, &v1alpha1.SandboxTemplateSpec{EnvVarsInjectionPolicy: allow}, field.NewPath("env")); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: error %v", raw, err)
		}
	}
}

func TestInjectVolumes(t *testing.T) {
	volume := func(name, size string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"` + name + `"},"spec":{"resources":"` + size + `"}}`)}
	}
	have := []runtime.RawExtension{volume("a", "1"), volume("b", "1")}
	template := &runtime.RawExtension{Raw: []byte(`{"spec":{"volumes":[{"name":"keys","secret":{"secretName":"k"}},
		{"name":"scratch","emptyDir":{"sizeLimit":"1Gi"}},{"name":"plain"},{"name":"null","secret":null}]}}`)}
	tests := map[string]struct {
		policy    v1alpha1.InjectionPolicy
		add, want []runtime.RawExtension
		refused   []string
	}{
		"nothing to add": {policy: disallow, want: have},
		"no policy":      {add: []runtime.RawExtension{volume("c", "1")}, refused: []string{"spec.volumes: Forbidden: not allowed by the template policy: volumeClaimTemplatesPolicy is Disallowed"}},
		"appended":       {policy: allow, add: []runtime.RawExtension{volume("c", "2")}, want: []runtime.RawExtension{have[0], have[1], volume("c", "2")}},
		"the template has it": {
			policy: allow, add: []runtime.RawExtension{volume("c", "2"), volume("b", "2")},
			refused: []string{"spec.volumes[1].metadata.name: Forbidden: b is a volume of the template"},
		},
		"replaced": {
			policy: overrides, add: []runtime.RawExtension{volume("c", "2"), volume("a", "2")},
			want: []runtime.RawExtension{volume("a", "2"), have[1], volume("c", "2")},
		},
		"a volume of the pod that is not empty": {
			policy: allow, add: []runtime.RawExtension{volume("scratch", "2"), volume("keys", "2")},
			refused: []string{"spec.volumes[1].metadata.name: Forbidden: keys is a volume of the template"},
		},
		"in the place of empty ones": {
			policy: allow, add: []runtime.RawExtension{volume("scratch", "2"), volume("plain", "2"), volume("null", "2")},
			want: []runtime.RawExtension{have[0], have[1], volume("scratch", "2"), volume("plain", "2"), volume("null", "2")},
		},
		"in the place of any": {
			policy: overrides, add: []runtime.RawExtension{volume("keys", "2")},
			want: []runtime.RawExtension{have[0], have[1], volume("keys", "2")},
		},
		"no name": {
			policy: overrides, add: []runtime.RawExtension{{Raw: []byte(`{}`)}},
			refused: []string{"spec.volumes[0].metadata.name: Invalid value: volume claim template without a name"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, refused, err := InjectVolumes(template, have, tc.add, &v1alpha1.SandboxTemplateSpec{VolumeClaimTemplatesPolicy: tc.policy}, field.NewPath("spec", "volumes"))
			if err != nil {
				t.Fatal(err)
			}
			expectRefused(t, tc.refused, refused)
			if len(tc.refused) > 0 {
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]runtime.RawExtension{volume("a", "1"), volume("b", "1")}, have); diff != "" {
				t.Errorf("what it was given has changed:\n%s", diff)
			}
		})
	}
	if _, _, err := InjectVolumes(template, []runtime.RawExtension{{Raw: []byte(`{}`)}}, have, &v1alpha1.SandboxTemplateSpec{VolumeClaimTemplatesPolicy: allow}, field.NewPath("v")); err == nil {
		t.Error("a template with a volume without a name was taken")
	}
	for _, raw := range []string{`[]`, `{"spec":{"volumes":{}}}`, `{"spec":{"volumes":["a"]}}`} {
		if _, _, err := InjectVolumes(&runtime.RawExtension{Raw: []byte(raw)}, nil, have, &v1alpha1.SandboxTemplateSpec{VolumeClaimTemplatesPolicy: allow}, field.NewPath("v")); err == nil {
			t.Errorf("%s was taken", raw)
		}
	}
}

// generic decodes JSON and keeps integers exact.
func generic(t *testing.T, raw string) (value any) {
	t.Helper()
	if err := utiljson.Unmarshal([]byte(raw), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
