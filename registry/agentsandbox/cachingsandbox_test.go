// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// countingLookup has one template and counts what it is asked for.
type countingLookup struct {
	template *v1alpha1.SandboxTemplate
	asked    int
}

func (l *countingLookup) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	l.asked++
	if l.template == nil || name != l.template.Name {
		return nil, nil
	}
	return l.template, nil
}

func (*countingLookup) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	return nil, nil
}

func referring(name, template string) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u-1", ResourceVersion: "7"}}
	sandbox.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template, Kind: v1alpha1.TemplateKindSandboxTemplate}
	return sandbox
}

func knownTemplate() *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "known", UID: "t-1", ResourceVersion: "3"}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"a","image":"a"}]}}`)}
	return template
}

// TestWatchesShareEncodings: watches that show the same state of a sandbox encode it once.
func TestWatchesShareEncodings(t *testing.T) {
	t.Parallel()
	many := &countingLookup{template: knownTemplate()}
	templates := newPodTemplates(&countingLookup{}, many)
	sandbox := referring("a", "known")
	encodings := 0
	encode := func(obj runtime.Object, w io.Writer) error {
		encodings++
		_, err := w.Write(obj.(*v1alpha1.Sandbox).Spec.Template.Raw)
		return err
	}
	for range 3 {
		from := watch.NewFakeWithChanSize(1, false)
		from.Modify(sandbox)
		shown := templates.showEvents(t.Context(), from)
		event := <-shown.ResultChan()
		shown.Stop()
		cached, ok := event.Object.(runtime.CacheableObject)
		if !ok {
			t.Fatalf("watched a %T", event.Object)
		}
		for _, format := range []runtime.Identifier{"json", "yaml"} {
			var text bytes.Buffer
			if err := cached.CacheEncode(format, encode, &text); err != nil || text.String() != string(many.template.Spec.Template.Raw) {
				t.Errorf("encoded %s, %v", &text, err)
			}
		}
	}
	if encodings != 2 || sandbox.Spec.Template != nil {
		t.Errorf("%d encodings of two formats, and what is stored became %v", encodings, sandbox.Spec.Template)
	}
}

// TestDeletedEventOfSelectorWatch: a watch whose selector a sandbox no longer matches sends the state from
// before that with the same resourceVersion as the state that others send.
func TestDeletedEventOfSelectorWatch(t *testing.T) {
	t.Parallel()
	templates := newPodTemplates(&countingLookup{}, &countingLookup{template: knownTemplate()})
	before, after := referring("a", "known"), referring("a", "known")
	before.Labels = map[string]string{"warm": "true"}
	for _, event := range []watch.Event{{Type: watch.Deleted, Object: before}, {Type: watch.Modified, Object: after}} {
		from := watch.NewFakeWithChanSize(1, false)
		from.Action(event.Type, event.Object)
		shown := templates.showEvents(t.Context(), from)
		got := (<-shown.ResultChan()).Object.(runtime.CacheableObject).GetObject().(*v1alpha1.Sandbox)
		shown.Stop()
		if diff := cmp.Diff(event.Object.(*v1alpha1.Sandbox).Labels, got.Labels); diff != "" || got.Spec.Template == nil {
			t.Errorf("%s: labels (-want +got):\n%s", event.Type, diff)
		}
	}
}

// TestShownEventsAreBounded: neither the number of states that are kept nor the bytes of one
// grow with what is watched.
func TestShownEventsAreBounded(t *testing.T) {
	t.Parallel()
	events := newCachingSandboxes()
	template := knownTemplate().Spec.Template
	long := []byte(strings.Repeat("x", shownBytes/3))
	for i := range 2 * shownStates {
		sandbox := referring("a", "known")
		sandbox.ResourceVersion = fmt.Sprint(i)
		shown := events.get(watch.Modified, sandbox, template)
		for format := range 6 {
			var text bytes.Buffer
			err := shown.CacheEncode(runtime.Identifier(fmt.Sprint(format)), func(_ runtime.Object, w io.Writer) error {
				_, err := w.Write(long)
				return err
			}, &text)
			if err != nil || text.Len() != len(long) {
				t.Fatalf("%d bytes, %v", text.Len(), err)
			}
		}
		kept := 0
		for _, text := range shown.texts {
			kept += cap(text)
		}
		if kept == 0 || kept > shownBytes {
			t.Fatalf("one state keeps %d bytes", kept)
		}
	}
	if n := events.states.Len(); n > shownStates {
		t.Errorf("%d states are kept", n)
	}
}

// TestListsReadTheCache: what refers to nothing costs lists and watches no read of the store,
// and what becomes a Table or metadata no lookup at all.
func TestListsReadTheCache(t *testing.T) {
	t.Parallel()
	one, many := &countingLookup{}, &countingLookup{}
	templates := newPodTemplates(one, many)
	show := func(ctx context.Context) {
		templates.show(ctx, &v1alpha1.SandboxList{Items: []v1alpha1.Sandbox{*referring("a", "gone"), *referring("b", "lost")}})
		from := watch.NewFakeWithChanSize(1, false)
		from.Modify(referring("a", "gone"))
		shown := templates.showEvents(ctx, from)
		<-shown.ResultChan()
		shown.Stop()
	}
	show(t.Context())
	if one.asked != 0 || many.asked != 3 {
		t.Errorf("the store is asked %d times, the cache %d times", one.asked, many.asked)
	}
	show(WithoutPodTemplates(t.Context()))
	if one.asked != 0 || many.asked != 3 {
		t.Errorf("for a Table the store is asked %d times, the cache %d times", one.asked, many.asked-3)
	}
	templates.show(t.Context(), referring("a", "gone"))
	if one.asked != 1 {
		t.Errorf("for one sandbox the store is asked %d times", one.asked)
	}
}
