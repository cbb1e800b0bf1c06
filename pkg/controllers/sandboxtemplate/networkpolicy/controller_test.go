// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
)

// The server is asked only where there may be something that the cache does not show.
func TestRemovalReader(t *testing.T) {
	type cache struct{ client.Client }
	type server struct{ client.Reader }
	c := New(Options{Clock: clock.RealClock{}, Client: cache{}, Reader: server{}})
	for name, test := range map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		server bool
	}{
		"never changed": {change: func(s *v1alpha1.SandboxTemplate) { s.Generation = 1 }},
		"changed":       {change: func(s *v1alpha1.SandboxTemplate) { s.Generation = 2 }, server: true},
		"a revision": {change: func(s *v1alpha1.SandboxTemplate) {
			s.Generation, s.Name, s.Labels = 2, "s-h4sh", map[string]string{v1alpha1.LabelTemplateHash: "h4sh"}
			s.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "s", UID: "s", Controller: new(true),
			}}
		}},
	} {
		template := templateOf(v1alpha1.SandboxTemplateSpec{})
		test.change(template)
		if _, asked := c.removalReader(template).(server); asked != test.server {
			t.Errorf("%s: asks the server: %v", name, asked)
		}
	}
}

// answers answers reads with what it has, and records what it was asked. It has no
// SandboxSets.
type answers struct {
	client.Client
	name      string
	template  *v1alpha1.SandboxTemplate
	policy    *networkingv1.NetworkPolicy
	sandboxes int
	pods      int
	fails     error
	deleting  error
	asked     *[]string
}

func (a answers) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.SandboxTemplate:
		if a.template != nil {
			a.template.DeepCopyInto(object)
			return nil
		}
	case *networkingv1.NetworkPolicy:
		if a.policy != nil {
			a.policy.DeepCopyInto(object)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (a answers) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.SandboxList:
		*a.asked = append(*a.asked, a.name+" sandboxes")
		list.Items = make([]v1alpha1.Sandbox, a.sandboxes)
	case *corev1.PodList:
		*a.asked = append(*a.asked, a.name+" pods")
		list.Items = make([]corev1.Pod, a.pods)
	}
	return a.fails
}

func (a answers) Delete(_ context.Context, object client.Object, opts ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	if o.Preconditions == nil || *o.Preconditions.UID != object.GetUID() || *o.Preconditions.ResourceVersion != object.GetResourceVersion() {
		return errors.New("deleted without preconditions")
	}
	*a.asked = append(*a.asked, "delete")
	return a.deleting
}

// The server is asked only to confirm that nothing is left, and what is left is looked at
// ever more seldom.
func TestRelease(t *testing.T) {
	template := templateOf(v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged})
	policy := policyOf(template, callers.Callers{Namespace: "sandlot-system"}, keptBy(&corev1.Namespace{}))
	policy.UID, policy.ResourceVersion = "u", "7"
	unwell := errors.New("unwell")
	all := []string{"cache sandboxes", "cache pods", "server sandboxes", "server pods"}
	for name, test := range map[string]struct {
		cache, server answers
		asked         []string
		again         bool
		err           error
	}{
		"sandboxes":             {cache: answers{sandboxes: 1}, asked: all[:1], again: true},
		"pods":                  {cache: answers{pods: 1}, asked: all[:2], again: true},
		"the cache is behind":   {server: answers{pods: 1}, asked: all, again: true},
		"nothing":               {asked: append(slices.Clone(all), "delete")},
		"changed meanwhile":     {cache: answers{deleting: apierrors.NewConflict(schema.GroupResource{}, "p", unwell)}, asked: append(slices.Clone(all), "delete"), again: true},
		"no answer":             {server: answers{fails: unwell}, asked: all[:3], err: unwell},
		"refused":               {cache: answers{deleting: unwell}, asked: append(slices.Clone(all), "delete"), err: unwell},
		"gone since the delete": {cache: answers{deleting: apierrors.NewNotFound(schema.GroupResource{}, "p")}, asked: append(slices.Clone(all), "delete")},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			test.cache.name, test.cache.policy, test.cache.asked = "cache", policy, &asked
			test.server.name, test.server.asked = "server", &asked
			c := New(Options{Clock: clock.RealClock{}, Client: test.cache, Reader: test.server})
			req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(template)}
			result, err := c.Reconcile(t.Context(), req)
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Fatal(err)
			}
			if !slices.Equal(asked, test.asked) {
				t.Errorf("asked %q, want %q", asked, test.asked)
			}
			if again := result.RequeueAfter > 0; again != test.again {
				t.Errorf("looks again: %v", result)
			}
			if !test.again {
				return
			}
			for range 10 {
				before := result.RequeueAfter
				if result, err = c.Reconcile(t.Context(), req); err != nil || result.RequeueAfter < before && before < lastRecheck {
					t.Fatalf("%s after %s, %v", result.RequeueAfter, before, err)
				}
			}
			if longest := time.Duration(float64(lastRecheck) * (1 + recheckJitter)); result.RequeueAfter < lastRecheck || result.RequeueAfter > longest {
				t.Errorf("looks again after %s at the end", result.RequeueAfter)
			}
		})
	}
}

// A template of a namespace that is gone is no reason to try again.
func TestNamespaceIsGone(t *testing.T) {
	template := templateOf(v1alpha1.SandboxTemplateSpec{NetworkPolicyManagement: v1alpha1.NetworkPolicyManaged})
	c := New(Options{Clock: clock.RealClock{}, Client: answers{template: template}, Reader: answers{}})
	result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(template)})
	if err != nil || result != (reconcile.Result{}) {
		t.Errorf("%v, %v", result, err)
	}
}
