// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestRevertPatch(t *testing.T) {
	small, large := list("cpu", "2", "memory", "1Gi"), list("cpu", "4", "memory", "1Gi")
	wanted := template(t, spec(container("a", large, nil), container("b", large, nil)))
	sidecars := func(p *corev1.Pod) {
		p.Spec.InitContainers = containers(sidecar(container("s", large, nil)), container("once", large, nil))
		for _, name := range []string{"s", "once"} {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses,
				corev1.ContainerStatus{Name: name, Resources: &corev1.ResourceRequirements{Requests: small}})
		}
	}
	for name, test := range map[string]struct {
		pod      *corev1.Pod
		template *runtime.RawExtension
		goal     Goal
		want     string
	}{
		"it has what it was asked to have": {pod: pod(containers(container("a", large, large))), template: wanted},
		"more was asked of one of two": {
			pod: pod(containers(container("a", large, large), container("b", small, nil)), gives(small, small)), template: wanted,
			want: `{"containers":[{"name":"a","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}}]}`,
		},
		"what it has is not known": {
			pod: pod(containers(container("a", large, nil)), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), template: wanted,
		},
		"another container than the claim changes": {
			pod: pod(containers(container("x", large, nil)), gives(small, nil)), template: wanted,
		},
		"only the cpu of the first": {
			pod:  pod(containers(container("a", list("cpu", "4", "memory", "2Gi"), nil)), gives(small, nil)),
			goal: Goal{CPU: true}, template: wanted, want: `{"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}`,
		},
		"a sidecar, and what runs once": {
			pod: pod(nil, sidecars), template: template(t, &corev1.PodSpec{InitContainers: containers(container("s", large, nil), container("once", large, nil))}),
			want: `{"initContainers":[{"name":"s","resources":{"requests":{"cpu":"2"}}}]}`,
		},
		"no template": {pod: pod(containers(container("a", large, nil)), gives(small, nil)), template: &runtime.RawExtension{Raw: []byte("[]")}},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.want
			if want != "" {
				want = `{"metadata":{"resourceVersion":"7"},"spec":` + want + `}`
			}
			if got := string(RevertPatch(test.pod, test.template, test.goal)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestTakeBack: a template has what it had before if the resize failed, and nothing is left of that.
func TestTakeBack(t *testing.T) {
	const (
		before = `{"spec":{"containers":[{"image":"one","name":"a","new":9007199254740993,"resources":{"limits":{"x.io/gpu":"1"},"requests":{"cpu":"2"}}},` +
			`{"image":"b","name":"b"}],"initContainers":[{"image":"s","name":"s","resources":{"requests":{"cpu":"1"}},"restartPolicy":"Always"}]}}`
		after = `{"spec":{"containers":[{"image":"two","name":"a","new":9007199254740993,"resources":{"limits":{"x.io/gpu":"1"},"requests":{"cpu":"4"}}},` +
			`{"image":"b","name":"b","resources":{"requests":{"memory":"1Gi"}}}],"initContainers":[{"image":"s","name":"s","resources":{"requests":{"cpu":"3"}},"restartPolicy":"Always"}]}}`
	)
	raw := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	long := strings.Repeat("long ", 400)
	for name, test := range map[string]struct {
		goal    Goal
		ends    Progress
		changed bool
		left    string
	}{
		"given":              {Goal{Size: true}, Progress{Step: StepDone}, false, ""},
		"failed":             {Goal{Size: true}, Failed("no room"), true, ""},
		"failed, the cpu":    {Goal{Image: true, CPU: true}, Failed("no room"), true, `{"image":true,"cpu":true}`},
		"not all was wanted": {Goal{CPU: true, Failed: "no template"}, Failed("no template"), false, `{"cpu":true,"failed":"no template"}`},
		"nor was the rest":   {Goal{CPU: true, Failed: "no template"}, Failed("no room"), true, `{"cpu":true,"failed":"no template"}`},
		"told at length":     {Goal{Size: true, Failed: long}, Failed(cut(long, maxFailed)), false, ""},
		"still under way":    {Goal{Size: true}, Progress{Step: StepRevert, Message: "no room"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.goal.Before = Before(raw(before), raw(after))
			sb := &v1alpha1.Sandbox{}
			sb.Spec.Template = raw(after)
			Begin(sb, test.goal, time.Unix(5, 0))
			if !InProgress(sb) || GoalOf(sb).Before == "" {
				t.Errorf("begins with %v", sb.Annotations)
			}
			setOnBinding(sb, test.ends.Condition(), time.Unix(6, 0))
			changed, err := TakeBack(sb)
			want := after
			if test.changed {
				want = strings.Replace(before, `"one"`, `"two"`, 1) // the image is a matter of its own
			}
			if got := string(sb.Spec.Template.Raw); err != nil || changed != test.changed || got != want {
				t.Errorf("changed %t, %v:\n%s, want\n%s", changed, err, got, want)
			}
			if got := sb.Annotations[v1alpha1.AnnotationInplaceUpdate]; got != test.left {
				t.Errorf("%s is left, want %s", got, test.left)
			}
			if again, err := TakeBack(sb); again || err != nil {
				t.Errorf("again: %t, %v", again, err)
			}
		})
	}
	if patch := Before(raw(before), raw(strings.Replace(before, "one", "two", 1))); patch != "" {
		t.Errorf("another image is undone by %s", patch)
	}
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationInplaceUpdate: `{"before":"{}"}`}}}
	sb.Spec.Template = raw("no template")
	setOnBinding(sb, Failed("no room").Condition(), time.Unix(6, 0))
	if _, err := TakeBack(sb); err == nil {
		t.Error("a template that cannot be read is taken back")
	}
}
