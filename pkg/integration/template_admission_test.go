// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// said keeps the warnings of a client.
type said struct {
	mu    sync.Mutex
	texts []string
}

func (s *said) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, text)
}

// take returns the warnings since the last take.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.texts = nil }()
	return strings.Join(s.texts, "\n")
}

// hearing returns a client whose warnings are kept.
func hearing(t *testing.T, s *testutil.Server) (versioned.Interface, *said) {
	t.Helper()
	heard := &said{}
	config := rest.CopyConfig(s.Config)
	config.WarningHandlerWithContext = heard
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, heard
}

func podOf(containers string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[` + containers + `]}}`)}
}

// referringSet is a set of sandboxes of a template, patched.
func referringSet(name, template, patch string) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	set.Spec.Replicas = new(int32)
	set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	if patch != "" {
		set.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	return set
}

// versionOf returns the resourceVersion of a set.
func versionOf(t *testing.T, sets typed.SandboxSetInterface, name string) string {
	t.Helper()
	set, err := sets.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set.ResourceVersion
}

// TestSetsAreJudgedByTheirTemplates: by every verb that writes a set, dry or not,
// and at once after the template was made.
func TestSetsAreJudgedByTheirTemplates(t *testing.T) {
	s := start(t)
	client, heard := hearing(t, s)
	sets := client.AgentsV1alpha1().SandboxSets(namespace)
	s.Template(t, namespace, "python")
	for a, b := range map[string]string{"there": "back", "back": "there"} {
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: a}}
		template.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: b}
		if _, err := client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
			// The second of them closes the circle.
			template.Spec.TemplateRef, template.Spec.Template = nil, podOf(`{"name":"main","image":"busybox"}`)
			if !strings.Contains(err.Error(), "spec.templateRef: Invalid value: ") || !strings.Contains(err.Error(), "go round in a circle") {
				t.Errorf("closing a circle: %v", err)
			}
		}
	}
	heard.take()

	tests := map[string]struct {
		template, patch string
		field, warning  string
	}{
		"good":             {template: "python", patch: `{"metadata":{"labels":{"size":"large"}}}`},
		"missing":          {template: "ruby", warning: "spec.templateRef: SandboxTemplate ruby: not found; the set stays empty until it exists"},
		"no containers":    {template: "python", patch: `{"spec":{"containers":null}}`, field: "spec.patch.spec.containers"},
		"without an image": {template: "python", patch: `{"spec":{"containers":[{"name":"other"}]}}`, field: "spec.patch"},
		"does not fit":     {template: "python", patch: `{"spec":{"containers":[{"image":"x"}]}}`, field: "spec.patch"},
		"label":            {template: "python", patch: `{"metadata":{"labels":{"a":"x y"}}}`, field: "spec.patch.metadata.labels"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			good, err := sets.Create(t.Context(), referringSet("old-"+id, "python", ""), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, dry := range [][]string{{metav1.DryRunAll}, nil} {
				for verb, write := range map[string]func() error{
					"create": func() error {
						_, err := sets.Create(t.Context(), referringSet("new-"+id, tc.template, tc.patch), metav1.CreateOptions{DryRun: dry})
						return err
					},
					"update": func() error {
						changed := referringSet(good.Name, tc.template, tc.patch)
						changed.ResourceVersion = versionOf(t, sets, good.Name)
						_, err := sets.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: dry})
						return err
					},
					"patch": func() error {
						// Something changes each time, or nothing is judged.
						data := fmt.Sprintf(`{"spec":{"templateRef":{"name":%q},"patch":null}}`, "python")
						if _, err := sets.Patch(t.Context(), good.Name, types.MergePatchType, []byte(data), metav1.PatchOptions{}); err != nil {
							return fmt.Errorf("resetting: %w", err)
						}
						heard.take()
						// A merge patch would take nulls away, so it is a JSON patch.
						data = fmt.Sprintf(`[{"op":"replace","path":"/spec/templateRef/name","value":%q}`, tc.template)
						if tc.patch != "" {
							data += fmt.Sprintf(`,{"op":"add","path":"/spec/patch","value":%s}`, tc.patch)
						}
						_, err := sets.Patch(t.Context(), good.Name, types.JSONPatchType, []byte(data+"]"), metav1.PatchOptions{DryRun: dry})
						return err
					},
					"apply": func() error {
						data, err := json.Marshal(referringSet("applied-"+id, tc.template, tc.patch))
						if err != nil {
							return err
						}
						_, err = sets.Patch(t.Context(), "applied-"+id, types.ApplyPatchType, data,
							metav1.PatchOptions{DryRun: dry, FieldManager: "test", Force: new(true)})
						return err
					},
				} {
					heard.take()
					if verb == "update" { // so that it changes something
						reset := referringSet(good.Name, "python", "")
						reset.ResourceVersion = versionOf(t, sets, good.Name)
						if _, err := sets.Update(t.Context(), reset, metav1.UpdateOptions{}); err != nil {
							t.Fatal(err)
						}
						heard.take()
					}
					err := write()
					if tc.field == "" && err != nil {
						t.Errorf("%s, dry run %v: %v", verb, dry, err)
					}
					if tc.field != "" && (!apierrors.IsInvalid(err) || !names(err, tc.field)) {
						t.Errorf("%s, dry run %v: got %v, want an error at %s", verb, dry, err, tc.field)
					}
					if got := heard.take(); got != tc.warning {
						t.Errorf("%s, dry run %v: warnings %q, want %q", verb, dry, got, tc.warning)
					}
				}
			}
		})
	}

	// What does not change the pods is not judged again: this set has none by now.
	if err := client.AgentsV1alpha1().SandboxTemplates(namespace).Delete(t.Context(), "python", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	heard.take() // whose template it was: see TestDeletionsSayWhatStays
	if _, err := sets.Patch(t.Context(), "old-good", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":1}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	err := client.AgentsV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(namespace).Resource("sandboxsets").Name("old-good").
		SubResource("scale").Body([]byte(`{"spec":{"replicas":0}}`)).Do(t.Context()).Error()
	if err != nil {
		t.Error(err)
	}
	if got := heard.take(); got != "" {
		t.Errorf("warnings %q", got)
	}
}

// names says whether an answer blames a field.
func names(err error, field string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == field {
			return true
		}
	}
	return false
}

// TestTemplateChangesWarnOfTheirSets: a change that a set cannot follow is made, and
// says so.
func TestTemplateChangesWarnOfTheirSets(t *testing.T) {
	s := start(t)
	client, heard := hearing(t, s)
	templates := client.AgentsV1alpha1().SandboxTemplates(namespace)
	python := s.Template(t, namespace, "python")
	const patch = `{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"b"}]}]}}`
	if _, err := client.AgentsV1alpha1().SandboxSets(namespace).Create(t.Context(), referringSet("pool", "python", patch), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	update := func(container string) string {
		t.Helper()
		python.Spec.Template = podOf(container)
		var err error
		if python, err = templates.Update(t.Context(), python, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return heard.take()
	}
	if got := update(`{"name":"main","image":"busybox:2"}`); got != "" {
		t.Errorf("a good change: %q", got)
	}
	// The watch cache may not know the set of a moment ago yet: then there is none
	// to warn of, and a change after that finds it.
	const want = "SandboxSet pool cannot follow this change, and keeps its sandboxes as they are: SandboxTemplate python: the patch cannot be applied: " +
		`it names container "main", which spec.containers of the template does not have (there is other); one that is added needs an image`
	for i := 0; ; i++ {
		if got := update(fmt.Sprintf(`{"name":"other","image":"busybox:%d"}`, i)); got == want {
			break
		} else if got != "" {
			t.Fatalf("warnings %q, want %q", got, want)
		}
		if t.Context().Err() != nil {
			t.Fatal("no warning")
		}
	}
	python.Labels = map[string]string{"a": "b"}
	if _, err := templates.Update(t.Context(), python, metav1.UpdateOptions{}); err != nil || heard.take() != "" {
		t.Errorf("a change of labels: %v", err)
	}
}
