// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// home has one ConfigMap, and sandboxes.
type home struct {
	client.Client
	config    *corev1.ConfigMap
	sandboxes []v1alpha1.Sandbox
	err       error
}

func (h *home) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	if h.err != nil {
		return h.err
	}
	if h.config == nil || key != (types.NamespacedName{Namespace: "home", Name: "sandbox-injection-config"}) {
		return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
	}
	h.config.DeepCopyInto(into.(*corev1.ConfigMap))
	return nil
}

func (h *home) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*v1alpha1.SandboxList).Items = h.sandboxes
	return h.err
}

func configOf(version string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: runtimesConfigMap, UID: "c", ResourceVersion: version},
		Data:       data,
	}
}

func withRuntimes(names ...string) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) {
		for _, name := range names {
			s.Spec.Runtimes = append(s.Spec.Runtimes, v1alpha1.RuntimeConfig{Name: name})
		}
	}
}

func TestInject(t *testing.T) {
	const agent = "{mainContainer: {env: [{name: A, value: b}]}}"
	h := &home{config: configOf("1", map[string]string{
		"agent": agent, "broken": "{spec: [", "unfit": "{spec: {containers: [{image: x}]}}",
	})}
	tests := map[string]struct {
		runtimes []string
		home     *home
		reason   string
		message  string
	}{
		"none, and no request":        {home: &home{err: errors.New("was asked")}},
		"one":                         {home: h, runtimes: []string{"agent"}},
		"no ConfigMap":                {home: &home{}, runtimes: []string{"agent"}, reason: "RuntimeNotFound", message: `runtime "agent": there is no ConfigMap home/sandbox-injection-config`},
		"no such runtime":             {home: h, runtimes: []string{"agent", "csi"}, reason: "RuntimeNotFound", message: `runtime "csi": ConfigMap home/sandbox-injection-config has no such key`},
		"malformed":                   {home: h, runtimes: []string{"agent", "broken"}, reason: "InvalidRuntime", message: `runtime "broken" of ConfigMap home/sandbox-injection-config: `},
		"does not fit, and not first": {home: h, runtimes: []string{"agent", "unfit"}, reason: "InvalidRuntime", message: `runtime "unfit" of ConfigMap`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			i := newInjector(test.home, "home")
			sandbox := newSandbox(withRuntimes(test.runtimes...))
			for range 2 { // the second is remembered
				got, err := i.inject(t.Context(), sandbox)
				if test.reason != "" {
					missing, ok := asTemplateError(err)
					if !ok || missing.reason != test.reason || !strings.Contains(err.Error(), test.message) || isTry(err) {
						t.Errorf("got %v, error %v; want %s with %q", got, err, test.reason, test.message)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(test.runtimes) == 0 {
					if got != sandbox.Spec.Template {
						t.Errorf("another template: %s", got.Raw)
					}
				} else if !strings.Contains(string(got.Raw), `"env":[{"name":"A","value":"b"}]`) {
					t.Errorf("template %s", got.Raw)
				}
			}
		})
	}
	unread := newInjector(h, "home")
	unread.synced = func() bool { return false }
	_, err := unread.inject(t.Context(), newSandbox(withRuntimes("agent")))
	if missing, ok := asTemplateError(err); !ok || missing.reason != "RuntimeNotFound" || !strings.Contains(err.Error(), "cannot be read yet") {
		t.Errorf("before anything was read: %v", err)
	}
	outage := errors.New("connection refused")
	if _, err := newInjector(&home{err: outage}, "home").inject(t.Context(), newSandbox(withRuntimes("agent"))); !errors.Is(err, outage) {
		t.Errorf("an outage: %v", err)
	} else if _, ok := asTemplateError(err); ok {
		t.Error("an outage counts as a missing runtime")
	}
}

// The key of what is cached has all that it is made from.
func TestInjectedAnew(t *testing.T) {
	byReference := func(s *v1alpha1.Sandbox) { s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "pool-1"} }
	for how, changes := range map[string][]func(*v1alpha1.Sandbox){"inline": nil, "by reference": {byReference}} {
		t.Run(how, func(t *testing.T) { testInjectedAnew(t, changes) })
	}
}

func testInjectedAnew(t *testing.T, always []func(*v1alpha1.Sandbox)) {
	h := &home{}
	i := newInjector(h, "home")
	inject := func(version, value string, changes ...func(*v1alpha1.Sandbox)) string {
		t.Helper()
		h.config = configOf(version, map[string]string{
			"a": fmt.Sprintf("{mainContainer: {env: [{name: A, value: %s}]}}", value),
			"b": "{spec: {hostname: b}}",
		})
		got, err := i.inject(t.Context(), newSandbox(append(changes, always...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(got.Raw)
	}
	first := inject("1", "one", withRuntimes("a"))
	if again := inject("1", "unseen", withRuntimes("a")); again != first {
		t.Errorf("made again: %s", again)
	}
	for name, other := range map[string]string{
		"the ConfigMap": inject("2", "two", withRuntimes("a")),
		"the runtimes":  inject("1", "one", withRuntimes("a", "b")),
		"the template": inject("1", "one", withRuntimes("a"), func(s *v1alpha1.Sandbox) {
			s.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"c","image":"j"}]}}`)
		}),
	} {
		if other == first {
			t.Errorf("%s does not count", name)
		}
	}
}

// However many templates there are, and however large, little of it is remembered.
func TestInjectedIsBounded(t *testing.T) {
	h := &home{config: configOf("1", map[string]string{"a": "{spec: {hostname: a}}"})}
	i := newInjector(h, "home")
	inject := func(image string, referring bool) {
		t.Helper()
		_, err := i.inject(t.Context(), newSandbox(withRuntimes("a"), func(s *v1alpha1.Sandbox) {
			if referring {
				s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "pool-1"}
			}
			s.Spec.Template.Raw = fmt.Appendf(nil, `{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	inject("of its own", false)
	inject(strings.Repeat("x", injectedMax), true)
	if got := i.done.Len(); got != 0 {
		t.Errorf("remembers %d", got)
	}
	for n := range 2 * injectedKept {
		inject(fmt.Sprint(n), true)
	}
	if got := i.done.Len(); got != injectedKept {
		t.Errorf("remembers %d, want %d", got, injectedKept)
	}
	for version := range 3 {
		h.config = configOf(fmt.Sprint(version), map[string]string{fmt.Sprint("r", version): "{spec: {hostname: a}}"})
		if _, err := i.inject(t.Context(), newSandbox(withRuntimes(fmt.Sprint("r", version)))); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(i.parsed.runtimes); got != 1 {
		t.Errorf("remembers %d runtimes of several versions", got)
	}
}

// A sandbox whose runtime is missing waits like one whose template is.
func TestWaitsForRuntime(t *testing.T) {
	o := observation{sandbox: newSandbox(withRuntimes("agent"), phase(v1alpha1.SandboxPending)), revision: revision, now: now}
	_, err := newInjector(&home{}, "home").inject(t.Context(), o.sandbox)
	missing, ok := asTemplateError(err)
	if !ok {
		t.Fatal(err)
	}
	got := o.withoutTemplate(missing)
	ready := meta.FindStatusCondition(got.status.Conditions, v1alpha1.SandboxConditionReady)
	if got.action != actionNone || ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonRuntimeNotFound {
		t.Errorf("plan %+v", got)
	}
	o.sandbox.Status = got.status
	if next := decide(&o); next.action != actionCreate || next.status.Message != "" || waitsForTemplate(&next.status) {
		t.Errorf("then %+v", next)
	}
}

func TestRuntimesQueueThoseThatWait(t *testing.T) {
	named := func(name string, changes ...func(*v1alpha1.Sandbox)) v1alpha1.Sandbox {
		sandbox := newSandbox(changes...)
		sandbox.Name = name
		return *sandbox
	}
	h := &home{sandboxes: []v1alpha1.Sandbox{
		named("waits", withRuntimes("a"), phase(v1alpha1.SandboxPending)),
		named("resumes", withRuntimes("a"), phase(v1alpha1.SandboxResuming)),
		named("runs", withRuntimes("a"), phase(v1alpha1.SandboxRunning)),
		named("without", phase(v1alpha1.SandboxPending)),
	}}
	i := newInjector(h, "home")
	q := &adding{}
	i.events(h).Update(t.Context(), event.UpdateEvent{ObjectNew: configOf("1", nil)}, q)
	if got := strings.Join(q.added, " "); got != "waits resumes" {
		t.Errorf("queued %s", got)
	}
	other := configOf("1", nil)
	other.Name = "other"
	q = &adding{}
	if i.events(h).Create(t.Context(), event.CreateEvent{Object: other}, q); len(q.added) > 0 {
		t.Errorf("another ConfigMap queued %v", q.added)
	}
}
