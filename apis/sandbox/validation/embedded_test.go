// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// illegal returns what no new object may have: a template of more than its size or
// of no sense, and claims and strategies of no sense.
func illegal(template string) v1alpha1.EmbeddedSandboxTemplate {
	e := v1alpha1.EmbeddedSandboxTemplate{VolumeClaimTemplates: []runtime.RawExtension{*rawJSON(`{"spec":7}`)}}
	if template != "" {
		e.Template = rawJSON(template)
	}
	return e
}

var illegalTemplates = map[string]string{
	"large":     `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", maxTemplateSize) + `"}},"spec":{"containers":[{"name":"a","image":"b"}]}}`,
	"malformed": `{"spec":{"containers":7}}`,
	"none":      "",
}

// What was stored under other rules stays changeable in all else.
func TestUpdatesCheckWhatChanges(t *testing.T) {
	wrong := &v1alpha1.PauseStrategy{Type: "Sleep"}
	for name, raw := range illegalTemplates {
		t.Run(name, func(t *testing.T) {
			old := sandbox(t, func(s *v1alpha1.Sandbox) {
				s.Spec.EmbeddedSandboxTemplate, s.Spec.PauseStrategy = illegal(raw), wrong
			})
			if errs := ValidateSandbox(old); len(errs) != 3 {
				t.Errorf("new: %v", errs)
			}
			changed := old.DeepCopy()
			changed.Finalizers = []string{"example.com/a"}
			changed.Spec.Paused, changed.Spec.ShutdownTime = true, ptr.To(metav1.Unix(1, 0))
			expect(t, ValidateSandboxUpdate(changed, old), nil)
			changed.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: "Doze"}
			expect(t, ValidateSandboxUpdate(changed, old), []string{"spec.pauseStrategy.type: "})

			half := ptr.To(intstr.FromString("half"))
			oldSet := set(t, func(s *v1alpha1.SandboxSet) {
				s.Spec.EmbeddedSandboxTemplate, s.Spec.PauseStrategy = illegal(raw), wrong
				s.Spec.ScaleStrategy.MaxUnavailable, s.Spec.UpdateStrategy.MaxUnavailable = half, half
			})
			if errs := ValidateSandboxSet(oldSet); len(errs) != 5 {
				t.Errorf("new: %v", errs)
			}
			changedSet := oldSet.DeepCopy()
			changedSet.Spec.Replicas = ptr.To(int32(0))
			expect(t, ValidateSandboxSetUpdate(changedSet, oldSet), nil)
			changedSet.Spec.UpdateStrategy.MaxUnavailable = ptr.To(intstr.FromString("third"))
			expect(t, ValidateSandboxSetUpdate(changedSet, oldSet), []string{"spec.updateStrategy.maxUnavailable: "})

			oldTemplate := template(t, func(s *v1alpha1.SandboxTemplate) {
				s.Spec.EmbeddedSandboxTemplate = v1alpha1.EmbeddedSandboxTemplate{Template: illegal(raw).Template}
			})
			if errs := ValidateSandboxTemplate(oldTemplate); len(errs) != 1 {
				t.Errorf("new: %v", errs)
			}
			changedTemplate := oldTemplate.DeepCopy()
			changedTemplate.Labels = map[string]string{"a": "b"}
			expect(t, ValidateSandboxTemplateUpdate(changedTemplate, oldTemplate), nil)
		})
	}
}

// A volume that nothing mounts is a mistake in a change of either side.
func TestUpdateOfTheMounts(t *testing.T) {
	claim := *rawJSON(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	old := set(t, func(s *v1alpha1.SandboxSet) {
		s.Spec.Template = rawJSON(`{"spec":{"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"data","mountPath":"/a"}]}]}}`)
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{claim}
	})
	changed := old.DeepCopy()
	changed.Spec.Template = rawJSON(`{"spec":{"containers":[{"name":"a","image":"b"}]}}`)
	expect(t, ValidateSandboxSetUpdate(changed, old), []string{"spec.volumeClaimTemplates[0].metadata.name: Invalid value: "})
}

// Whatever an object that is being deleted looks like, its finalizers can go.
func TestUpdatesOfWhatIsBeingDeleted(t *testing.T) {
	going := meta("going")
	going.DeletionTimestamp, going.Finalizers = ptr.To(metav1.Unix(1, 0)), []string{"example.com/a"}
	sb := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.ObjectMeta, s.Spec.EmbeddedSandboxTemplate = going, illegal(illegalTemplates["malformed"])
		s.Spec.PersistentContents = []string{"ip"}
	})
	freed := sb.DeepCopy()
	freed.Finalizers = nil
	expect(t, ValidateSandboxUpdate(freed, sb), nil)
	freed.Spec.Template = rawTemplate(t)
	expect(t, ValidateSandboxUpdate(freed, sb), []string{"spec.template: " + yet})

	pool := set(t, func(s *v1alpha1.SandboxSet) {
		s.ObjectMeta, s.Spec.EmbeddedSandboxTemplate, s.Spec.PersistentContents = going, illegal(""), []string{"ip"}
	})
	freedPool := pool.DeepCopy()
	freedPool.Finalizers = nil
	expect(t, ValidateSandboxSetUpdate(freedPool, pool), nil)

	model := template(t, func(s *v1alpha1.SandboxTemplate) {
		s.ObjectMeta, s.Spec.EmbeddedSandboxTemplate, s.Spec.Service = going, illegal(""), ptr.To(true)
	})
	freedModel := model.DeepCopy()
	freedModel.Finalizers = nil
	expect(t, ValidateSandboxTemplateUpdate(freedModel, model), nil)
}

func TestValidateReferenceOfASet(t *testing.T) {
	tests := map[string]struct {
		ref  v1alpha1.SandboxTemplateRef
		want []string
	}{
		"name":                {ref: v1alpha1.SandboxTemplateRef{Name: "t"}},
		"of its own name":     {ref: v1alpha1.SandboxTemplateRef{Name: "pool"}},
		"all of it":           {ref: v1alpha1.SandboxTemplateRef{Name: "t", Kind: "SandboxTemplate", APIVersion: "agents.kruise.io/v1alpha1"}},
		"version alone":       {ref: v1alpha1.SandboxTemplateRef{Name: "t", APIVersion: "agents.kruise.io/v1alpha1"}},
		"PodTemplate":         {ref: v1alpha1.SandboxTemplateRef{Name: "t", Kind: "PodTemplate"}},
		"PodTemplate with v1": {ref: v1alpha1.SandboxTemplateRef{Name: "t", Kind: "PodTemplate", APIVersion: "v1"}},

		"no name": {want: []string{"spec.templateRef.name: Required value"}},
		"no name at all": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "A b"},
			want: []string{"spec.templateRef.name: Invalid value: \"A b\": "},
		},
		"a name too long for a label": {
			ref:  v1alpha1.SandboxTemplateRef{Name: strings.Repeat("a", 64)},
			want: []string{"spec.templateRef.name: Invalid value: \"" + strings.Repeat("a", 64) + "\": must be no more than 63 characters"},
		},
		"a name too long for anything": {
			ref:  v1alpha1.SandboxTemplateRef{Name: strings.Repeat("a", 254)},
			want: []string{"spec.templateRef.name: Too long: "},
		},
		"another kind": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "t", Kind: "SandboxSet"},
			want: []string{"spec.templateRef.kind: Unsupported value: \"SandboxSet\": supported values: \"SandboxTemplate\", \"PodTemplate\""},
		},
		"the version of the other kind": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "t", APIVersion: "v1"},
			want: []string{"spec.templateRef.apiVersion: Unsupported value: \"v1\": supported values: \"agents.kruise.io/v1alpha1\""},
		},
		"PodTemplate of our version": {
			ref:  v1alpha1.SandboxTemplateRef{Name: "t", Kind: "PodTemplate", APIVersion: "agents.kruise.io/v1alpha1"},
			want: []string{"spec.templateRef.apiVersion: Unsupported value: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := set(t, func(s *v1alpha1.SandboxSet) { s.Spec.Template, s.Spec.TemplateRef = nil, &tc.ref })
			expect(t, ValidateSandboxSet(changed), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, set(t, nil)), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, changed), nil) // what is stored already is not checked again
		})
	}
}

// repeated is a list of n elements without its brackets.
func repeated(element string, n int) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

func TestValidatePatch(t *testing.T) {
	tests := map[string]struct {
		patch  string
		inline bool
		want   []string
	}{
		"empty":      {patch: "{}"},
		"fields":     {patch: `{"metadata":{"labels":{"size":"large"}},"spec":{"fromTheFuture":[1]}}`},
		"directives": {patch: `{"spec":{"containers":[{"name":"a","$patch":"delete"}],"nodeSelector":null}}`},
		"with an inline template": {
			patch: "{}", inline: true,
			want: []string{"spec.patch: Forbidden: only together with templateRef"},
		},
		"a list":   {patch: "[]", want: []string{"spec.patch: Invalid value: must be an object"}},
		"a string": {patch: `"{}"`, want: []string{"spec.patch: Invalid value: must be an object"}},
		"no JSON":  {patch: "{", want: []string{"spec.patch: Invalid value: must be an object"}},
		"too large": {
			patch: `{"spec":{"hostname":"` + strings.Repeat("x", maxPatchSize) + `"}}`,
			want:  []string{"spec.patch: Too long: may not be more than 65536 bytes"},
		},
		"lists that are long": {
			patch: `{"metadata":{"finalizers":[` + repeated(`"x"`, maxListScalars) + `]},"spec":{"containers":[{"name":"a","env":[` + repeated("{}", maxListObjects) + `]}]}}`,
		},
		"too many variables": {
			patch: `{"spec":{"containers":[{"name":"a","env":[` + repeated("{}", maxListObjects+1) + `]}]}}`,
			want:  []string{"spec.patch.spec.containers[0].env: Too many: 257: must have at most 256 items"},
		},
		"too many finalizers": {
			patch: `{"metadata":{"finalizers":[` + repeated(`"x"`, maxListScalars+1) + `]}}`,
			want:  []string{"spec.patch.metadata.finalizers: Too many: 1025: must have at most 1024 items"},
		},
		"a directive that is too long": {
			patch: `{"spec":{"$setElementOrder/containers":[` + repeated(`{"name":"a"}`, maxListObjects+1) + `]}}`,
			want:  []string{"spec.patch.spec.$setElementOrder/containers: Too many: 257: must have at most 256 items"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := set(t, func(s *v1alpha1.SandboxSet) {
				s.Spec.Patch = rawJSON(tc.patch)
				if !tc.inline {
					s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}
				}
			})
			expect(t, ValidateSandboxSet(changed), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, set(t, nil)), tc.want)
			expect(t, ValidateSandboxSetUpdate(changed, changed), nil)
		})
	}
}

// TestReferenceToInline: the patch that fitted the reference is left over.
func TestReferenceToInline(t *testing.T) {
	old := set(t, func(s *v1alpha1.SandboxSet) {
		s.Spec.Template, s.Spec.TemplateRef, s.Spec.Patch = nil, &v1alpha1.SandboxTemplateRef{Name: "t"}, rawJSON("{}")
	})
	changed := set(t, func(s *v1alpha1.SandboxSet) { s.Spec.Patch = rawJSON("{}") })
	expect(t, ValidateSandboxSetUpdate(changed, old), []string{"spec.patch: Forbidden: only together with templateRef"})
}

func runtimesOf(names ...string) []v1alpha1.RuntimeConfig {
	var runtimes []v1alpha1.RuntimeConfig
	for _, name := range names {
		runtimes = append(runtimes, v1alpha1.RuntimeConfig{Name: name})
	}
	return runtimes
}

// The fields that sets and templates hand on to sandboxes have the same rules in all
// three.
func TestValidateCopiedFields(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = "r" + strings.Repeat("x", i%60)
	}
	tests := map[string]struct {
		contents []string
		runtimes []v1alpha1.RuntimeConfig
		want     []string
	}{
		"neither":       {},
		"all contents":  {contents: []string{"memory", "ip", "filesystem"}},
		"other content": {contents: []string{"ip", "disk"}, want: []string{`spec.persistentContents[1]: Unsupported value: "disk": supported values: "ip", "memory", "filesystem"`}},
		"no content":    {contents: []string{""}, want: []string{`spec.persistentContents[0]: Unsupported value: ""`}},
		"twice":         {contents: []string{"ip", "ip"}, want: []string{`spec.persistentContents[1]: Duplicate value: "ip"`}},
		"too many":      {contents: []string{"ip", "ip", "ip", "ip"}, want: []string{"spec.persistentContents: Too many: 4: must have at most 3 items"}},
		"runtimes":      {runtimes: runtimesOf("agent-runtime", "csi", "traffic-proxy")},
		"runtime twice": {runtimes: runtimesOf("csi", "csi"), want: []string{`spec.runtimes[1].name: Duplicate value: "csi"`}},
		"unnamed":       {runtimes: runtimesOf("csi", ""), want: []string{"spec.runtimes[1].name: Required value"}},
		"not a name":    {runtimes: runtimesOf("a/b"), want: []string{`spec.runtimes[0].name: Invalid value: "a/b": a lowercase RFC 1123 label`}},
		"long name":     {runtimes: runtimesOf(longName), want: []string{"spec.runtimes[0].name: Invalid value: "}},
		"many runtimes": {runtimes: runtimesOf(many...), want: []string{"spec.runtimes: Too many: 65: must have at most 64 items"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inSet := set(t, func(s *v1alpha1.SandboxSet) { s.Spec.PersistentContents, s.Spec.Runtimes = tc.contents, tc.runtimes })
			inTemplate := template(t, func(s *v1alpha1.SandboxTemplate) {
				s.Spec.PersistentContents, s.Spec.Runtimes = tc.contents, tc.runtimes
			})
			inSandbox := sandbox(t, func(s *v1alpha1.Sandbox) { s.Spec.PersistentContents, s.Spec.Runtimes = tc.contents, tc.runtimes })
			for kind, errs := range map[string][2]field.ErrorList{
				"set":      {ValidateSandboxSet(inSet), ValidateSandboxSetUpdate(inSet, set(t, nil))},
				"template": {ValidateSandboxTemplate(inTemplate), ValidateSandboxTemplateUpdate(inTemplate, template(t, nil))},
				"sandbox":  {ValidateSandbox(inSandbox), nil},
			} {
				t.Run(kind, func(t *testing.T) {
					expect(t, errs[0], tc.want)
					if kind != "sandbox" {
						expect(t, errs[1], tc.want)
					}
				})
			}
			// What is stored is not judged again.
			for kind, errs := range map[string]field.ErrorList{
				"set":      ValidateSandboxSetUpdate(inSet, inSet.DeepCopy()),
				"template": ValidateSandboxTemplateUpdate(inTemplate, inTemplate.DeepCopy()),
				"sandbox":  ValidateSandboxUpdate(inSandbox, inSandbox.DeepCopy()),
			} {
				if len(errs) > 0 {
					t.Errorf("%s: unchanged, and %v", kind, errs)
				}
			}
		})
	}
}

func TestWarningsOfWhatIsNotKept(t *testing.T) {
	if got := PersistenceWarnings(nil); got != nil {
		t.Errorf("nothing asked for: %q", got)
	}
	if got := PersistenceWarnings([]string{"ip"}); len(got) != 1 || !strings.HasPrefix(got[0], "spec.persistentContents: ") {
		t.Errorf("got %q", got)
	}
	if !slices.Equal(persistentContents, []string{"ip", "memory", "filesystem"}) {
		t.Errorf("values %q", persistentContents)
	}
}

func TestValidatePauseStrategy(t *testing.T) {
	tests := map[string]struct {
		strategy *v1alpha1.PauseStrategy
		want     []string
	}{
		"none":      {},
		"empty":     {strategy: &v1alpha1.PauseStrategy{}},
		"stop":      {strategy: &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}},
		"hibernate": {strategy: &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyHibernate}, want: []string{"spec.pauseStrategy.type: " + yet + "pausing by Hibernate; use Stop"}},
		"sleep":     {strategy: &v1alpha1.PauseStrategy{Type: "Sleep"}, want: []string{"spec.pauseStrategy.type: Unsupported value: \"Sleep\""}},
		"both": {
			strategy: &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop, HibernateStrategy: &v1alpha1.HibernateStrategy{}},
			want:     []string{"spec.pauseStrategy.hibernateStrategy: Forbidden: only with type Hibernate"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandboxSet(set(t, func(s *v1alpha1.SandboxSet) { s.Spec.PauseStrategy = tc.strategy })), tc.want)
		})
	}
}
