// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
)

func refers(s *v1alpha1.Sandbox) {
	s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
}

// shelf is a reader of SandboxTemplates.
type shelf struct {
	client.Reader
	templates map[string]*v1alpha1.SandboxTemplate
	err       error
}

func (s shelf) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	if s.err != nil {
		return s.err
	}
	template, ok := s.templates[key.Name]
	if !ok {
		return apierrors.NewNotFound(v1alpha1.Resource("sandboxtemplates"), key.Name)
	}
	template.DeepCopyInto(into.(*v1alpha1.SandboxTemplate))
	return nil
}

func controllerWith(cache, server shelf) *Controller {
	return New(Options{Clock: clocktesting.NewFakePassiveClock(now), Lookup: &templates.Lookup{Cache: cache, Server: server}})
}

func TestWhole(t *testing.T) {
	template := &v1alpha1.SandboxTemplate{}
	template.Spec.Template = newSandbox().Spec.Template
	template.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"metadata":{"name":"data"}}`)}}
	there := shelf{templates: map[string]*v1alpha1.SandboxTemplate{"base": template}}
	for name, c := range map[string]*Controller{
		"in the cache":         controllerWith(there, shelf{err: errors.New("was asked")}),
		"not in the cache yet": controllerWith(shelf{}, there),
	} {
		sandbox := newSandbox(refers)
		got, err := c.resolver.whole(t.Context(), sandbox)
		if err != nil || string(got.Spec.Template.Raw) != string(template.Spec.Template.Raw) || got.Name != sandbox.Name {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if err == nil && len(got.Spec.VolumeClaimTemplates) != 1 {
			t.Errorf("%s: without the volumes of the template: %+v", name, got.Spec)
		}
		if sandbox.Spec.Template != nil || sandbox.Spec.VolumeClaimTemplates != nil {
			t.Errorf("%s: the sandbox has changed", name)
		}
	}
	inline := newSandbox()
	if got, err := controllerWith(shelf{}, shelf{}).resolver.whole(t.Context(), inline); err != nil || got != inline {
		t.Errorf("inline: %v", err)
	}
	if _, err := controllerWith(shelf{}, shelf{}).resolver.whole(t.Context(), newSandbox(refers)); err == nil {
		t.Error("found a template that is not there")
	} else if missing, ok := asTemplateError(err); !ok || missing.reason != v1alpha1.ReasonTemplateNotFound || isTry(err) {
		t.Errorf("missing: %v, counts as a try: %v", err, isTry(err))
	}
	outage := errors.New("connection refused")
	if _, err := controllerWith(shelf{}, shelf{err: outage}).resolver.whole(t.Context(), newSandbox(refers)); !errors.Is(err, outage) {
		t.Errorf("an outage: %v", err)
	} else if _, ok := asTemplateError(err); ok {
		t.Error("an outage counts as a missing template")
	}
}

// Without a template a sandbox waits, says why, and forgets about it once it can
// start.
func TestWaitsForTemplate(t *testing.T) {
	for _, p := range []v1alpha1.SandboxPhase{"", v1alpha1.SandboxPending, v1alpha1.SandboxResuming} {
		o := observation{sandbox: newSandbox(refers, phase(p)), revision: revision, now: now}
		_, err := controllerWith(shelf{}, shelf{}).resolver.whole(t.Context(), o.sandbox)
		missing, ok := asTemplateError(err)
		if !ok {
			t.Fatal(err)
		}
		got := o.withoutTemplate(missing)
		want := p
		if want == "" {
			want = v1alpha1.SandboxPending
		}
		ready := meta.FindStatusCondition(got.status.Conditions, v1alpha1.SandboxConditionReady)
		if got.action != actionNone || got.status.Phase != want || ready == nil || ready.Status != metav1.ConditionFalse ||
			ready.Reason != v1alpha1.ReasonTemplateNotFound || !strings.Contains(got.status.Message, "SandboxTemplate base: not found") {
			t.Errorf("phase %q: plan %+v", p, got)
		}
		o.sandbox.Status = got.status
		if next := decide(&o); next.action != actionCreate || next.status.Message != "" || waitsForTemplate(&next.status) {
			t.Errorf("phase %q: then %+v", p, next)
		}
	}
}

// adding is a queue that notes what is added.
type adding struct {
	queue.Interface
	added []string
}

func (a *adding) Add(r reconcile.Request)                       { a.added = append(a.added, r.Name) }
func (a *adding) AddAfter(r reconcile.Request, _ time.Duration) { a.Add(r) }

func TestTemplateQueuesThoseThatWait(t *testing.T) {
	for p, want := range map[v1alpha1.SandboxPhase]int{
		"": 1, v1alpha1.SandboxPending: 1, v1alpha1.SandboxResuming: 1,
		v1alpha1.SandboxRunning: 0, v1alpha1.SandboxPaused: 0, v1alpha1.SandboxFailed: 0,
	} {
		q := &adding{}
		enqueueStarting(newSandbox(refers, phase(p)), q)
		if len(q.added) != want {
			t.Errorf("phase %q: queued %v", p, q.added)
		}
	}
}
