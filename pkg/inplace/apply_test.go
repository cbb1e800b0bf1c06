// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// wants is an inplaceUpdate; requests and limits are those of cpu, "" for none.
func wants(image, requests, limits string) *v1alpha1.SandboxClaimInplaceUpdateOptions {
	r := &v1alpha1.SandboxClaimInplaceUpdateResources{}
	if requests != "" {
		r.Requests = list("cpu", requests, "memory", "64Gi")
	}
	if limits != "" {
		r.Limits = list("cpu", limits, "x.io/gpu", "8")
	}
	return &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: image, Resources: r}
}

func TestApply(t *testing.T) {
	const both = `{"spec":{"containers":[{"name":"main","image":"a","resources":{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"4"}}}]}}`
	tests := map[string]struct {
		have  string
		wants *v1alpha1.SandboxClaimInplaceUpdateOptions
		// want is empty where nothing changes.
		want     string
		goal     Goal
		rejected string
		err      string
	}{
		"nothing is wanted": {have: both},
		"of the first container image and cpu, and everything else stays": {
			have: `{"metadata":{"labels":{"a":"b"}},"spec":{"unknown":9007199254740993,
				"initContainers":[{"name":"once","image":"a","resources":{"requests":{"cpu":"1"}}},{"name":"side","restartPolicy":"Always","image":"a","more":true}],
				"containers":[{"name":"main","image":"a","new":{"field":1},"resources":{"requests":{"cpu":"2","memory":"1Gi"},"claims":[{"name":"c"}]}},
					{"name":"other","image":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
			wants: wants("b", "1", ""), goal: Goal{Image: true, CPU: true},
			want: `{"metadata":{"labels":{"a":"b"}},"spec":{"unknown":9007199254740993,
				"initContainers":[{"name":"once","image":"a","resources":{"requests":{"cpu":"1"}}},{"name":"side","restartPolicy":"Always","image":"a","more":true}],
				"containers":[{"name":"main","image":"b","new":{"field":1},"resources":{"requests":{"cpu":"1","memory":"1Gi"},"claims":[{"name":"c"}]}},
					{"name":"other","image":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
		},
		"requests and limits": {
			have: both, wants: wants("", "8", "16"), goal: Goal{CPU: true},
			want: `{"spec":{"containers":[{"name":"main","image":"a","resources":{"requests":{"cpu":"8","memory":"1Gi"},"limits":{"cpu":"16"}}}]}}`,
		},
		"what it has already": {have: both, wants: wants("a", "2000m", "4")},
		"only the keys that it has": {
			have:  `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":2}}}]}}`,
			wants: wants("", "1", "3"), goal: Goal{CPU: true},
			want: `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"3"}}}]}}`,
		},
		"no cpu where there is none": {have: `{"spec":{"containers":[{"name":"main","resources":{"requests":{"memory":"1"}}}]}}`, wants: wants("", "1", "3")},
		"an image alone":             {have: `{"spec":{"containers":[{"name":"main"}]}}`, wants: &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: "b"}, goal: Goal{Image: true}, want: `{"spec":{"containers":[{"name":"main","image":"b"}]}}`},
		"a request above the limit": {
			have: both, wants: wants("b", "5", ""), goal: Goal{Image: true},
			want:     `{"spec":{"containers":[{"name":"main","image":"b","resources":{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"4"}}}]}}`,
			rejected: `up.resources.requests[cpu]: Invalid value: "5": must not be more than the cpu limit of the first container, 4`,
		},
		"a limit below the request": {
			have: both, wants: wants("", "", "1"),
			rejected: `up.resources.limits[cpu]: Invalid value: "1": must not be less than the cpu that the first container requests, 2`,
		},
		"no containers":        {have: `{"spec":{}}`, wants: wants("b", "", ""), err: "first container of the pod template: it has no container with a name"},
		"not a template":       {have: `null`, wants: wants("b", "", ""), err: "first container of the pod template: not an object"},
		"shapes that fit none": {have: `{"spec":{"containers":[7]}}`, wants: wants("b", "", ""), err: "first container of the pod template: json: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			have := &runtime.RawExtension{Raw: []byte(tc.have)}
			got, err := Apply(have, tc.wants, field.NewPath("up"))
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) || got.Template != have {
					t.Errorf("error is %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rejected := ""
			if e := got.Rejected.ToAggregate(); e != nil {
				rejected = e.Error()
			}
			if got.Goal != tc.goal || rejected != tc.rejected {
				t.Errorf("goal %+v, rejected %q", got.Goal, rejected)
			}
			if tc.want == "" {
				if got.Template != have {
					t.Errorf("changed to %s", got.Template.Raw)
				}
				return
			}
			var is, want any
			if err := utiljson.Unmarshal(got.Template.Raw, &is); err != nil {
				t.Fatal(err)
			}
			if err := utiljson.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
			if string(have.Raw) != tc.have {
				t.Error("changed what it was given")
			}
		})
	}
}

func TestGoals(t *testing.T) {
	sb := &v1alpha1.Sandbox{}
	for _, g := range []Goal{{Image: true, CPU: true, Failed: "x"}, {CPU: true}, {}} {
		Forget(sb)
		g.write(sb)
		if got := GoalOf(sb); got != g {
			t.Errorf("wrote %+v, read %+v", g, got)
		}
	}
	if len(sb.Annotations) > 0 {
		t.Errorf("no goal leaves %v", sb.Annotations)
	}
	sb.Annotations["sandlot.io/inplace-update"] = `{"image":7}`
	if got := GoalOf(sb); got.Any() {
		t.Errorf("read %+v", got)
	}
}

func TestProgressOfCPU(t *testing.T) {
	two, four := list("cpu", "2", "memory", "8Gi"), list("cpu", "4", "memory", "8Gi")
	tests := map[string]struct {
		pod  *corev1.Pod
		want *corev1.PodSpec
		goal Goal
		told Answers
		// alone: nothing else is to change.
		alone bool
		is    Progress
	}{
		"of a node that tells no resources of others, alone": {
			pod: pod(containers(container("a", two, nil), container("b", two, nil)), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[1].Resources = nil
				p.Spec.InitContainers = containers(sidecar(container("s", two, nil)))
			}),
			want:  &corev1.PodSpec{Containers: containers(container("a", list("cpu", "2", "memory", "64Gi"), nil), container("b", four, nil)), InitContainers: containers(container("s", four, nil))},
			alone: true, is: Progress{Step: StepDone},
		},
		"less, alone": {
			pod: pod(containers(container("a", four, nil), container("b", two, nil))), alone: true,
			want: spec(container("a", list("cpu", "2", "memory", "64Gi"), nil), container("b", four, nil)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`)},
		},
		"less": {
			pod: pod(containers(container("a", four, four))), want: spec(container("a", two, two)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}}]}}`)},
		},
		"of the first container alone": {
			pod:  pod(containers(container("a", four, nil), container("b", four, nil))),
			want: spec(container("a", two, nil), container("b", two, nil)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`)},
		},
		"memory is never less": {
			pod: pod(containers(container("a", four, nil))), want: spec(container("a", list("cpu", "4", "memory", "1Gi"), nil)),
			is: Progress{Step: StepDone},
		},
		"no limit that it has not": {
			pod: pod(containers(container("a", four, nil))), want: spec(container("a", four, list("cpu", "8"))),
			is: Progress{Step: StepDone},
		},
		"the cluster's limit stays": {
			pod: pod(containers(container("a", two, list("cpu", "3")))), want: spec(container("a", four, nil)),
			is: Progress{Step: StepPatch, Patch: []byte(
				`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"3"},"requests":{"cpu":"4"}}}]}}`)},
		},
		"the node still gives more": {
			pod: pod(containers(container("a", two, nil)), gives(four, nil)), want: spec(container("a", two, nil)),
			is: Progress{Step: StepWait},
		},
		"another class": {
			pod: pod(containers(container("a", four, four))), want: spec(container("a", two, four)),
			is: Progress{Step: StepFailed, Message: "resource resize would change QoS class from Guaranteed to Burstable, resize rejected"},
		},
		"a part was known to fail": {
			pod: pod(containers(container("a", two, nil))), want: spec(container("a", two, nil)), goal: Goal{CPU: true, Failed: "no template"},
			is: Progress{Step: StepFailed, Message: "in-place resource resize failed: no template"},
		},
		"the cluster makes something else of it": {
			pod: pod(containers(container("a", four, nil))), want: spec(container("a", two, nil)), told: Answers{Resize: true},
			is: Progress{Step: StepFailed, Message: "in-place resource resize failed: the cluster set other resources than it was asked for"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.goal == (Goal{}) {
				tc.goal.CPU = true
			}
			tc.goal.Size = !tc.alone
			got := ProgressOf(tc.pod, template(t, tc.want), tc.goal, tc.told)
			if diff := cmp.Diff(tc.is, got); diff != "" {
				t.Errorf("progress (-want +got):\n%s\npatch: %s", diff, got.Patch)
			}
			var patch map[string]any
			if err := json.Unmarshal(got.Patch, &patch); got.Patch != nil && err != nil {
				t.Error(err)
			}
		})
	}
}
