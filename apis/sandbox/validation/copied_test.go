// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

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
