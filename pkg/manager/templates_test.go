// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/simulated"
	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func newTemplate(name, image string) *v1alpha1.SandboxTemplate {
	template := builders.Template(name)
	template.Namespace, template.Spec.Template = ns, builders.PodTemplateOf(image)
	return template
}

func refer(to string) v1alpha1.EmbeddedSandboxTemplate {
	return v1alpha1.EmbeddedSandboxTemplate{TemplateRef: &v1alpha1.SandboxTemplateRef{Name: to}}
}

func claimFrom(ctx context.Context, t *testing.T, api typed.AgentsV1alpha1Interface, set string, n int32) *v1alpha1.SandboxClaim {
	t.Helper()
	claim, err := api.SandboxClaims(ns).Create(ctx, &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: set + "-"},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: set, Replicas: &n, CreateOnNoStock: new(false)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestTemplateTakenAsItIs: the current revision of a set that takes a template as it is, is
// that template, before and after an edit of it, and no SandboxTemplate has the set's name.
// What waits in its pool from before the edit is claimed as it was made.
func TestTemplateTakenAsItIs(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api, ctx := server.Client.AgentsV1alpha1(), t.Context()
	if _, err := api.SandboxTemplates(ns).Create(ctx, newTemplate("base", "a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const held, free = "pool", "patched"
	for _, name := range []string{held, free} {
		set := newSet(name, "", 3)
		set.Spec.EmbeddedSandboxTemplate = refer("base")
		if name == free {
			set.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{"spec":{"nodeSelector":{"size":"large"}}}`)}
		} else {
			set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0)) // a roll-out replaces nothing
		}
		if _, err := api.SandboxSets(ns).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	old := awaitSet(t, api, held, available(3)).Status.UpdateRevision
	awaitSet(t, api, free, available(3))
	check := func() {
		t.Helper()
		for _, name := range []string{held, free} {
			set, err := api.SandboxSets(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := "base"
			if name == free {
				want = name + "-" + set.Status.UpdateRevision
			}
			if got := set.Status.CurrentRevision; got != want {
				t.Errorf("the current revision of %s is %q, want %q", name, got, want)
			}
		}
		templates, err := api.SandboxTemplates(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, template := range templates.Items {
			if strings.HasPrefix(template.Name, held+"-") {
				t.Errorf("there is a SandboxTemplate %s", template.Name)
			}
		}
	}
	check()

	// claimed is the pod template that a claim gets.
	claimed := func() (name, template string) {
		t.Helper()
		claim := claimFrom(ctx, t, api, held, 1)
		sandbox, err := api.Sandboxes(ns).Get(ctx, claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if sandbox.Spec.Template == nil {
			t.Fatalf("the claimed sandbox has %+v", sandbox.Spec.EmbeddedSandboxTemplate)
		}
		return sandbox.Name, string(sandbox.Spec.Template.Raw)
	}
	first, template := claimed()
	if !strings.Contains(template, `"image":"a"`) {
		t.Errorf("claimed %s", template)
	}
	expect.Eventually(ctx, t, func(ctx context.Context) error { // the status may be of before the claim
		list, err := api.Sandboxes(ns).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxPool + "=" + held})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			sandbox := &list.Items[i]
			if v1alpha1.IsInPool(sandbox) && meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady) {
				ready++
			}
		}
		if ready != 3 {
			return fmt.Errorf("%d sandboxes in the pool are ready", ready)
		}
		return nil
	})
	edit := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"b"}]}}}}`)
	if _, err := api.SandboxTemplates(ns).Patch(ctx, "base", types.MergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSet(t, api, held, func(s *v1alpha1.SandboxSetStatus) bool { return s.UpdateRevision != old && s.AvailableReplicas == 3 })
	check()
	if _, template = claimed(); !strings.Contains(template, `"image":"a"`) {
		t.Errorf("claimed %s from a pool that was made before the edit", template)
	}

	let := []byte(`{"spec":{"updateStrategy":{"maxUnavailable":"100%"}}}`)
	if _, err := api.SandboxSets(ns).Patch(ctx, held, types.MergePatchType, let, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	rolledOut := func(s *v1alpha1.SandboxSetStatus) bool { return s.Replicas == 3 && s.UpdatedAvailableReplicas == 3 }
	awaitSet(t, api, held, rolledOut)
	check()
	if _, template = claimed(); !strings.Contains(template, `"image":"b"`) {
		t.Errorf("claimed %s after the roll-out", template)
	}
	sandbox, err := api.Sandboxes(ns).Get(ctx, first, metav1.GetOptions{})
	if err != nil || !strings.Contains(string(sandbox.Spec.Template.Raw), `"image":"a"`) {
		t.Errorf("%v: the sandbox of the first claim has %+v", err, sandbox.Spec.EmbeddedSandboxTemplate)
	}
}

// Two sets share a template, through another one; an edit of it reaches both.
func TestSharedTemplate(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api := server.Client.AgentsV1alpha1()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	middle := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "middle"}}
	middle.Spec.EmbeddedSandboxTemplate = refer("base")
	must(api.SandboxTemplates(ns).Create(ctx, newTemplate("base", "a"), metav1.CreateOptions{}))
	must(api.SandboxTemplates(ns).Create(ctx, middle, metav1.CreateOptions{}))
	for name, patch := range map[string]string{"small": "", "large": `{"spec":{"nodeSelector":{"size":"large"}}}`} {
		set := newSet(name, "", 5)
		set.Spec.EmbeddedSandboxTemplate = refer("middle")
		if patch != "" {
			set.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
		}
		must(api.SandboxSets(ns).Create(ctx, set, metav1.CreateOptions{}))
	}
	get := func(name string) *v1alpha1.SandboxSet {
		t.Helper()
		set, err := api.SandboxSets(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	// full waits until a set consists of a revision whose template has the text.
	full := func(name, text string) {
		t.Helper()
		expect.Eventually(ctx, t, func(ctx context.Context) error {
			s := get(name).Status
			if s.CurrentRevision == "" || s.Replicas != 5 || s.UpdatedAvailableReplicas != 5 {
				return fmt.Errorf("set %s is not full of %s: %+v", name, text, s)
			}
			holder, err := api.SandboxTemplates(ns).Get(ctx, podtemplate.HolderOf(&s), metav1.GetOptions{})
			if err == nil && !strings.Contains(string(holder.Spec.Template.Raw), text) {
				err = fmt.Errorf("set %s is full of %s, want %s", name, holder.Spec.Template.Raw, text)
			}
			return err
		})
	}
	full("small", `"image":"a"`)
	full("large", `"image":"a"`)
	full("large", `"nodeSelector":{"size":"large"}`)

	// A claimed sandbox holds its template itself and stays as it is.
	claimed := claimFrom(ctx, t, api, "large", 1)
	edit := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"b"}]}}}}`)
	must(api.SandboxTemplates(ns).Patch(ctx, "base", types.MergePatchType, edit, metav1.PatchOptions{}))
	full("small", `"image":"b"`)
	full("large", `"image":"b"`)
	sandbox, err := api.Sandboxes(ns).Get(ctx, claimed.Status.Sandboxes[0].Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sandbox.Spec.TemplateRef != nil || sandbox.Spec.Template == nil || !strings.Contains(string(sandbox.Spec.Template.Raw), `"image":"a"`) {
		t.Errorf("the claimed sandbox has %+v", sandbox.Spec.EmbeddedSandboxTemplate)
	}

	// The template at the end goes; the pools continue.
	if err := api.SandboxTemplates(ns).Delete(ctx, "base", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"small", "large"} {
		awaitSet(t, api, name, func(s *v1alpha1.SandboxSetStatus) bool {
			condition := meta.FindStatusCondition(s.Conditions, v1alpha1.SetConditionTemplateResolved)
			return condition != nil && condition.Reason == v1alpha1.ReasonTemplateNotFound
		})
	}
	claimFrom(ctx, t, api, "small", 3)
	full("small", `"image":"b"`)

	// With the sets go the templates that held their revisions.
	for _, name := range []string{"small", "large"} {
		if err := api.SandboxSets(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect.Eventually(ctx, t, func(ctx context.Context) error {
		list, err := api.SandboxTemplates(ns).List(ctx, metav1.ListOptions{})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Name != "middle") {
			err = fmt.Errorf("%d templates are left, want that in the middle", len(list.Items))
		}
		return err
	})
}

// A sandbox of a user's own waits for its template, and then has nothing to do
// with it any more.
func TestSandboxWaitsForItsTemplate(t *testing.T) {
	server := testutil.Start(t)
	run(t, server.Config, manager.Options{Options: controllers.Options{Simulate: true}})
	api := server.Client.AgentsV1alpha1()
	ctx := t.Context()
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "box"}}
	sandbox.Spec.EmbeddedSandboxTemplate = refer("base")
	if _, err := api.Sandboxes(ns).Create(ctx, sandbox, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSandbox(t, api, "box", func(s *v1alpha1.Sandbox) bool {
		return s.Status.Phase == v1alpha1.SandboxPending && strings.Contains(s.Status.Message, "SandboxTemplate base: not found")
	})
	if _, err := api.SandboxTemplates(ns).Create(ctx, newTemplate("base", "a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runs := awaitSandbox(t, api, "box", inPhase(v1alpha1.SandboxRunning))
	edit := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"` + simulated.FailImage + `"}]}}}}`)
	if _, err := api.SandboxTemplates(ns).Patch(ctx, "base", types.MergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// What comes after it has been through the same queue.
	second := sandbox.DeepCopy()
	second.Name = "second"
	if _, err := api.Sandboxes(ns).Create(ctx, second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSandbox(t, api, "second", inPhase(v1alpha1.SandboxFailed))
	if got := awaitSandbox(t, api, "box", func(*v1alpha1.Sandbox) bool { return true }); got.ResourceVersion != runs.ResourceVersion {
		t.Errorf("an edit of the template changed a sandbox that runs: %+v", got.Status)
	}
}
