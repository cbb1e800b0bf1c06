// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// list makes a resource list of pairs of names and amounts.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Image: "i", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

// pod makes a pod whose containers have what they are specified to have.
func pod(containers []corev1.Container, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Generation, p.ResourceVersion = 2, "7"
	p.Spec.Containers = containers
	for _, c := range containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Resources: c.Resources.DeepCopy()})
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func containers(c ...corev1.Container) []corev1.Container { return c }

func spec(c ...corev1.Container) *corev1.PodSpec { return &corev1.PodSpec{Containers: c} }

// template encodes a pod spec as a pod template.
func template(t *testing.T, spec *corev1.PodSpec) *runtime.RawExtension {
	t.Helper()
	raw, err := json.Marshal(corev1.PodTemplateSpec{Spec: *spec})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

func is(kind corev1.PodConditionType, reason, message string, generation int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
		})
	}
}

// gives says what the node gives the container.
func gives(requests, limits corev1.ResourceList) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

func TestProgressOf(t *testing.T) {
	small, large := list("cpu", "2", "memory", "8Gi"), list("cpu", "4", "memory", "8Gi")
	tests := map[string]struct {
		pod  *corev1.Pod
		want *corev1.PodSpec
		is   Progress
	}{
		"more cpu": {
			pod: pod(containers(container("a", small, small))), want: spec(container("a", large, large)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"4"},"requests":{"cpu":"4"}}}]}}`)},
		},
		"one of two": {
			pod:  pod(containers(container("a", small, small), container("b", list("memory", "1Gi"), nil))),
			want: spec(container("b", list("memory", "2Gi"), nil), container("a", small, small)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"b","resources":{"requests":{"memory":"2Gi"}}}]}}`)},
		},
		"more than the template says": {
			pod:  pod(containers(container("a", list("cpu", "4", "memory", "16Gi"), nil)), gives(list("cpu", "4", "memory", "16Gi"), nil)),
			want: spec(container("a", large, nil)), is: Progress{Step: StepDone},
		},
		"only what is less": {
			pod: pod(containers(container("a", list("cpu", "2", "memory", "16Gi"), nil))), want: spec(container("a", large, nil)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"4"}}}]}}`)},
		},
		"the same in other words": {
			pod: pod(containers(container("a", list("cpu", "2"), nil))), want: spec(container("a", list("cpu", "2000m"), nil)),
			is: Progress{Step: StepDone},
		},
		"what the template does not say": {
			pod:  pod(containers(container("a", list("cpu", "2", "memory", "1Gi", "x.io/gpu", "1"), nil), container("injected", small, nil))),
			want: spec(container("a", list("cpu", "2", "x.io/gpu", "2"), nil), container("gone", small, nil)),
			is:   Progress{Step: StepDone},
		},
		"a sidecar, and what runs once": {
			pod: pod(containers(container("a", small, nil)), func(p *corev1.Pod) {
				p.Spec.InitContainers = containers(sidecar(container("s", list("cpu", "1"), nil)), container("once", list("cpu", "1"), nil))
			}),
			want: &corev1.PodSpec{InitContainers: containers(container("s", list("cpu", "2"), nil), container("once", list("cpu", "2"), nil))},
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"initContainers":[{"name":"s","resources":{"requests":{"cpu":"2"}}}]}}`)},
		},
		"no limit where there is none": {
			pod: pod(containers(container("a", small, nil))), want: spec(container("a", list("cpu", "2"), list("cpu", "4"))),
			is: Progress{Step: StepDone},
		},
		"a limit that the cluster has set goes up to the request": {
			pod: pod(containers(container("a", list("cpu", "1"), list("cpu", "2")))), want: spec(container("a", list("cpu", "4"), nil)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"4"},"requests":{"cpu":"4"}}}]}}`)},
		},
		"another class": {
			pod: pod(containers(container("a", small, small))), want: spec(container("a", small, large)),
			is: Progress{Step: StepFailed, Message: "resource resize would change QoS class from Guaranteed to Burstable, resize rejected"},
		},
		"another class than the cluster's": {
			pod:  pod(containers(container("a", small, small)), func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable }),
			want: spec(container("a", large, large)),
			is:   Progress{Step: StepFailed, Message: "resource resize would change QoS class from Burstable to Guaranteed, resize rejected"},
		},
		"asked, not given": {
			pod: pod(containers(container("a", large, large)), gives(small, small)), want: spec(container("a", large, large)),
			is: Progress{Step: StepWait},
		},
		"asked, one limit not given": {
			pod: pod(containers(container("a", large, large)), gives(large, small)), want: spec(container("a", large, large)),
			is: Progress{Step: StepWait},
		},
		"nothing known of what is given": {
			pod:  pod(containers(container("a", large, large)), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }),
			want: spec(container("a", large, large)), is: Progress{Step: StepWait},
		},
		"in progress": {
			pod:  pod(containers(container("a", large, large)), is(corev1.PodResizeInProgress, "Error", "cgroups", 2)),
			want: spec(container("a", large, large)), is: Progress{Step: StepWait, Message: "cgroups"},
		},
		"infeasible": {
			pod:  pod(containers(container("a", large, large)), gives(small, small), is(corev1.PodResizePending, "Infeasible", "no room", 2)),
			want: spec(container("a", large, large)),
			is:   Progress{Step: StepRevert, Message: "in-place resource resize failed: pod resize is infeasible: no room"},
		},
		"deferred, without a generation": {
			pod:  pod(containers(container("a", large, large)), gives(small, small), is(corev1.PodResizePending, "Deferred", "", 0)),
			want: spec(container("a", large, large)),
			is:   Progress{Step: StepRevert, Message: "in-place resource resize failed: pod resize is infeasible for now, it is deferred"},
		},
		"an earlier one was infeasible": {
			pod:  pod(containers(container("a", large, large)), gives(small, small), is(corev1.PodResizePending, "Infeasible", "no room", 1)),
			want: spec(container("a", large, large)), is: Progress{Step: StepWait},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := test.pod.DeepCopy()
			got := ProgressOf(test.pod, template(t, test.want), Goal{}, Answers{})
			if diff := cmp.Diff(test.is, got); diff != "" {
				t.Errorf("progress (-want +got):\n%s\npatch: %s", diff, got.Patch)
			}
			if diff := cmp.Diff(before, test.pod); diff != "" {
				t.Errorf("it changed the pod:\n%s", diff)
			}
		})
	}
}

func TestProgressOfAnUnreadableTemplate(t *testing.T) {
	got := ProgressOf(pod(containers(container("a", nil, nil))), sized(`{"limits":{"cpu":"much"}}`), Goal{}, Answers{})
	if got.Step != StepFailed || !strings.HasPrefix(got.Message, "in-place resource resize failed: resources of the pod template: ") {
		t.Errorf("progress %+v", got)
	}
}

func sized(resources string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"a","resources":` + resources + `}]}}`)}
}

func TestSimulate(t *testing.T) {
	two, four := sized(`{"limits":{"cpu":"2","memory":"1Gi"}}`), sized(`{"limits":{"cpu":"4","memory":"1Gi"}}`)
	bad := sized(`{"limits":{"cpu":"much"}}`)
	tests := map[string]struct {
		before, after *runtime.RawExtension
		want          Step
	}{
		"granted":             {two, four, StepDone},
		"before is not known": {nil, four, StepDone},
		"another class":       {two, sized(`{"requests":{"cpu":"2"}}`), StepFailed},
		"before is malformed": {bad, four, StepFailed},
		"after is malformed":  {two, bad, StepFailed},
	}
	for name, test := range tests {
		if got := Simulate(test.before, test.after, Goal{}); got.Step != test.want || (got.Message != "") != (test.want == StepFailed) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestSpecOf(t *testing.T) {
	template := &runtime.RawExtension{Raw: []byte(`{"spec":{"unknown":1,
		"containers":[{"name":"a","image":"i","resources":{"limits":{"cpu":"4","memory":"1Gi"},"requests":{"cpu":"2"}}},{"name":"b"}],
		"initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":1}}}]}}`)}
	got, err := specOf(template)
	if err != nil {
		t.Fatal(err)
	}
	a, s := container("a", list("cpu", "2", "memory", "1Gi"), list("cpu", "4", "memory", "1Gi")), sidecar(container("s", list("cpu", "1"), nil))
	a.Image, s.Image = "", ""
	want := &corev1.PodSpec{Containers: containers(a, corev1.Container{Name: "b"}), InitContainers: containers(s)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if _, err := specOf(&runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"much"}}}]}}`)}); err == nil {
		t.Error("took an amount that is none")
	}
}

func TestClassOf(t *testing.T) {
	for want, c := range map[corev1.PodQOSClass]corev1.Container{
		corev1.PodQOSBestEffort: container("a", nil, nil),
		corev1.PodQOSBurstable:  container("a", list("cpu", "1"), nil),
		corev1.PodQOSGuaranteed: container("a", list("cpu", "1", "memory", "1"), list("cpu", "1", "memory", "1")),
	} {
		if got := classOf(spec(c)); got != want {
			t.Errorf("class is %s, want %s", got, want)
		}
	}
}
