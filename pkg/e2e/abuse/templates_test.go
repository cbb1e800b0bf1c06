// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// variables returns a pod template, or a patch of one, with a label, and with so many
// containers, that each have so many environment variables.
func variables(t testing.TB, label string, containers, each int) *runtime.RawExtension {
	t.Helper()
	var all []any
	for i := range containers {
		var env []any
		for j := range each {
			env = append(env, map[string]string{"name": fmt.Sprintf("V%05d", j), "value": ""})
		}
		all = append(all, map[string]any{"name": fmt.Sprintf("c%d", i), "image": "busybox:1", "env": env})
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{"n": label}},
		"spec":     map[string]any{"containers": all},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

// patchedSet returns an empty set that patches a template.
func patchedSet(name, template string, patch *runtime.RawExtension) *v1alpha1.SandboxSet {
	set := builders.Set(name, 0)
	set.Spec.Template = nil
	set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	set.Spec.Patch = patch
	return set
}

// TestLargePatches patches a large template with large patches, of 100 KiB each: lists of
// thousands that are merged by their keys.
func TestLargePatches(t *testing.T) {
	const each = 3300 // three keys and items each: more than 10,000 are refused
	s := startServer(t)
	innocent := s.innocent(t)
	template := builders.Template("large")
	template.Spec.Template = variables(t, "template", 1, each)
	if _, err := s.SandboxTemplates(eve).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Logf("the template: %.200v", err)
	}
	before := s.usage(t)
	for i := range 10 {
		_, err := s.SandboxSets(eve).Create(t.Context(), patchedSet(fmt.Sprintf("set-%d", i), "large", variables(t, fmt.Sprint(i), 1, each)), metav1.CreateOptions{})
		if err != nil && !apierrors.IsInvalid(err) {
			t.Error(err)
		}
		t.Logf("a set: %.200v", err)
	}
	_, err := s.SandboxSets(eve).Create(t.Context(), patchedSet("larger", "large", variables(t, "larger", 1, 8000)), metav1.CreateOptions{})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a larger set: %.200v", err)
	}
	innocent.undisturbed(t)
	s.usage(t).since(t, before).atMost(t, usage{cpu: 6 * time.Second, store: 16 * mebibyte, heap: 64 * mebibyte})
}

// TestEditOfAPatchedTemplate edits a template that hundreds of sets patch, each in its own way.
func TestEditOfAPatchedTemplate(t *testing.T) {
	const containers, each = 3, 250
	sets := expect.Many(200, 500)
	s := startServer(t)
	template := builders.Template("shared")
	template.Spec.Template = variables(t, "template", containers, each)
	if _, err := s.SandboxTemplates(eve).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range sets {
		set := patchedSet(fmt.Sprintf("set-%d", i), "shared", variables(t, fmt.Sprint(i), containers, each))
		if _, err := s.SandboxSets(eve).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	innocent := s.innocent(t)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // the controllers are done
		list, err := s.SandboxSets(eve).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if set := &list.Items[i]; set.Status.ObservedGeneration != set.Generation || set.Status.UpdateRevision == "" {
				<-time.After(time.Second) // the list is long, and costs more than what it looks for
				return fmt.Errorf("set %s: %+v", set.Name, set.Status)
			}
		}
		return nil
	})
	before, began := s.usage(t), time.Now()
	// A dry run does all that the request does, and nothing after it.
	edit := []byte(`{"spec":{"template":{"metadata":{"labels":{"edited":"true"}}}}}`)
	_, err := s.SandboxTemplates(eve).Patch(t.Context(), "shared", types.MergePatchType, edit, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	t.Logf("an edit took %s: %.200v", time.Since(began), err)
	s.usage(t).since(t, before).atMost(t, usage{cpu: 2 * time.Second, store: mebibyte, heap: 16 * mebibyte})
	innocent.undisturbed(t)
}
