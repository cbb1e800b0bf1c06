// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// runs is the container a of a pod with an image by its spec and another by its status,
// as one run of it.
func runs(spec, status, id string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = spec
		s := &p.Status.ContainerStatuses[0]
		s.Image, s.ContainerID, s.ImageID, s.Ready = status, id, "sha256:"+status, true
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
}

func waits(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := &p.Status.ContainerStatuses[0]
		s.Ready, s.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
}

// asked is what the patch for an image leaves on the pod.
func asked(image, id string, refused ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := state{Image: image, LastContainerStatuses: map[string]instance{"a": {ContainerID: id, ImageID: "sha256:one"}}, Generation: 2, ResizeRefused: strings.Join(refused, "")}
		raw, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		p.Annotations = map[string]string{v1alpha1.AnnotationInplaceUpdateState: string(raw)}
	}
}

func TestProgressOfAnImage(t *testing.T) {
	two, four := list("cpu", "2", "memory", "1Gi"), list("cpu", "4", "memory", "1Gi")
	onePod := func(changes ...func(*corev1.Pod)) *corev1.Pod {
		return pod(containers(container("a", two, two), container("b", two, two)), append([]func(*corev1.Pod){runs("one", "one", "id-1")}, changes...)...)
	}
	notReady := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }
	ended := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
	later := func(p *corev1.Pod) { p.Generation = 3 }
	noStatus := func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[1:] }
	failed := func(message string) Progress { return Progress{Step: StepFailed, Image: ImageFailed, Message: message} }
	done := Progress{Step: StepDone, Image: ImageDone}
	waiting := Progress{Step: StepWait}
	ending := Progress{Step: StepWait, IsEnding: true,
		Message: "the process of before has not ended; if it ignores SIGTERM, it is killed after 30s (terminationGracePeriodSeconds)"}
	ask := Progress{Step: StepPatch, ImagePatch: []byte(`{"metadata":{"resourceVersion":"7","annotations":{"agents.kruise.io/inplace-update-state":` +
		`"{\"image\":\"two\",\"lastContainerStatuses\":{\"a\":{\"containerID\":\"id-1\",\"imageID\":\"sha256:one\"}},\"generation\":2}"}},` +
		`"spec":{"containers":[{"name":"a","image":"two"}]}}`)}
	const tooLarge = "quota"
	askAfter := Progress{Step: StepPatch, ImagePatch: []byte(strings.Replace(string(ask.ImagePatch), `\"generation\":2}"`, `\"generation\":2,\"resizeRefused\":\"quota\"}"`, 1))}
	const qos = "resource resize would change QoS class from Guaranteed to Burstable, resize rejected"
	tests := map[string]struct {
		pod *corev1.Pod
		// cpu is what the container is to have; two if nil.
		requests corev1.ResourceList
		limits   corev1.ResourceList
		told     Answers
		is       Progress
	}{
		"to be asked for":                       {pod: onePod(), is: ask},
		"another image was asked for, long ago": {pod: onePod(asked("older", "id-0")), is: ask},
		"asked for, the old one runs":           {pod: onePod(runs("two", "one", "id-1"), asked("two", "id-1")), is: ending},
		"asked for, the old one is not ready":   {pod: onePod(runs("two", "one", "id-1"), asked("two", "id-1"), notReady), is: ending},
		"the old one is being ended":            {pod: onePod(runs("two", "one", "id-1"), asked("two", "id-1"), ended), is: waiting},
		"being started":                         {pod: onePod(runs("two", "one", "id-1"), asked("two", "id-1"), waits("ContainerCreating", "")), is: waiting},
		"started, not ready":                    {pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), notReady), is: waiting},
		"has ended at once":                     {pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), ended), is: waiting},
		"nothing is told of it":                 {pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), noStatus), is: waiting},
		"runs":                                  {pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1")), is: done},
		"runs under another name":               {pod: onePod(runs("two", "docker.io/library/two:latest", "id-2"), asked("two", "id-1")), is: done},
		"the same image by another name":        {pod: onePod(runs("two", "one", "id-2"), asked("two", "id-1")), is: done},
		"a webhook calls it otherwise":          {pod: onePod(runs("mirror/two", "mirror/two", "id-2"), asked("two", "id-1")), is: done},
		"had it before":                         {pod: onePod(runs("two", "two", "id-1")), is: done},
		"had it before, and is not ready":       {pod: onePod(runs("two", "two", "id-1"), notReady), is: waiting},
		"a node that tells no IDs, not yet":     {pod: onePod(runs("two", "one", ""), asked("two", "")), is: ending},
		"a node that tells no IDs":              {pod: onePod(runs("two", "two", ""), asked("two", "")), is: done},
		"cannot be pulled at first": {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("ErrImagePull", "timeout")),
			is: Progress{Step: StepWait, Message: "timeout"}},
		"cannot be pulled for now": {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("ImagePullBackOff", `Back-off pulling image "two"`)),
			is: Progress{Step: StepWait, Message: `Back-off pulling image "two"`}},
		"its registry is not there": {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("RegistryUnavailable", "")),
			is: Progress{Step: StepWait, Message: "RegistryUnavailable"}},
		"is no image":         {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("InvalidImageName", "")), is: failed("InvalidImageName")},
		"is not there":        {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("ErrImageNeverPull", "absent")), is: failed("absent")},
		"cannot be created":   {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("CreateContainerConfigError", "no secret")), is: failed("no secret")},
		"cannot be run":       {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), waits("RunContainerError", "no shell")), is: failed("no shell")},
		"crashes":             {pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), waits("CrashLoopBackOff", "back-off 10s")), is: failed("back-off 10s")},
		"refused by the API":  {pod: onePod(), told: Answers{ImageRefused: "policy"}, is: failed("in-place image update failed: policy")},
		"something else came": {pod: onePod(), told: Answers{Image: true}, is: failed("in-place image update failed: the cluster set another image than it was asked for")},
		"no such container": {pod: onePod(func(p *corev1.Pod) { p.Spec.Containers[0].Name = "x" }),
			is: failed("in-place image update failed: the pod has no container a")},

		"after the resources": {pod: onePod(), requests: four, limits: four, is: Progress{Step: StepPatch, Patch: []byte(
			`{"metadata":{"resourceVersion":"7"},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"4"},"requests":{"cpu":"4"}}}]}}`)}},
		"and resources of another class": {pod: onePod(), requests: two, limits: four, is: ask},
		"and resources of another class, in the end": {
			pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1")), requests: two, limits: four,
			is: Progress{Step: StepFailed, Image: ImageDone, Message: qos},
		},
		"and resources that were refused": {pod: onePod(), requests: four, limits: four, told: Answers{ResizeRefused: tooLarge}, is: askAfter},
		"and resources that were refused, in the end": {
			pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1", tooLarge)), requests: four, limits: four,
			is: Progress{Step: StepFailed, Image: ImageDone, Message: "in-place resource resize failed: quota"},
		},
		"and resources that there are not, in the end": {
			pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), has(four), is(corev1.PodResizePending, "Infeasible", "", 2)), requests: four, limits: four,
			is: Progress{Step: StepRevert, Image: ImageDone, Message: "in-place resource resize failed: pod resize is infeasible"},
		},
		"and resources that there were not before it was asked for": {
			pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), has(four), is(corev1.PodResizePending, "Infeasible", "", 2), later), requests: four, limits: four,
			is: Progress{Step: StepRevert, Image: ImageDone, Message: "in-place resource resize failed: pod resize is infeasible"},
		},
		"and resources that there were not for an earlier resize": {
			pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), has(four), is(corev1.PodResizePending, "Infeasible", "", 1), later), requests: four, limits: four,
			is: Progress{Step: StepWait, Image: ImageDone},
		},
		"and resources that there are not, on the way": {
			pod: onePod(runs("two", "one", "id-1"), asked("two", "id-1"), has(four), is(corev1.PodResizePending, "Infeasible", "", 2)), requests: four, limits: four,
			is: ending,
		},
		"and resources that come later": {pod: onePod(runs("two", "two", "id-2"), asked("two", "id-1"), has(four)), requests: four, limits: four,
			is: Progress{Step: StepWait, Image: ImageDone}},
		"fails, whatever becomes of the resources": {pod: onePod(runs("two", "one", ""), asked("two", "id-1"), has(four), waits("InvalidImageName", "no")),
			requests: four, limits: four, is: failed("no")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.requests == nil {
				tc.requests, tc.limits = two, two
			}
			want := spec(container("a", tc.requests, tc.limits), container("b", two, two))
			want.Containers[0].Image = "two"
			got := ProgressOf(tc.pod, template(t, want), Goal{Image: true, CPU: true}, tc.told)
			if diff := cmp.Diff(tc.is, got); diff != "" {
				t.Errorf("progress (-want +got):\n%s\npatch: %s", diff, got.ImagePatch)
			}
		})
	}
}

// has is a pod whose first container has these resources by its spec.
func has(resources corev1.ResourceList) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: resources, Limits: resources}
	}
}

// TestImageAlone: an update of the image looks at no resources, which old nodes do not
// report.
func TestImageAlone(t *testing.T) {
	small := list("cpu", "1")
	p := pod(containers(container("a", small, nil)), runs("two", "two", "id-2"), asked("two", "id-1"), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Resources = nil
	})
	want := spec(container("a", list("cpu", "2"), nil))
	want.Containers[0].Image = "two"
	for goal, step := range map[Goal]Step{{Image: true}: StepDone, {Image: true, CPU: true}: StepPatch, {Image: true, Size: true}: StepPatch} {
		if got := ProgressOf(p, template(t, want), goal, Answers{}); got.Step != step {
			t.Errorf("%+v: %+v", goal, got)
		}
	}
}

func TestStuck(t *testing.T) {
	for reason, want := range map[string]bool{
		"": false, "ContainerCreating": false, "PodInitializing": false,
		"ErrImagePull": true, "ImagePullBackOff": true, "CreateContainerError": true, "CrashLoopBackOff": true,
	} {
		if got := Stuck(&corev1.ContainerStateWaiting{Reason: reason}); got != want {
			t.Errorf("%q: %v", reason, got)
		}
	}
	if Stuck(nil) {
		t.Error("one that does not wait")
	}
}

func TestImageCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		p     Progress
		want  *metav1.Condition
		lacks bool
	}{
		"no image":  {p: Progress{Step: StepDone}},
		"runs":      {p: Progress{Step: StepFailed, Message: "no room", Image: ImageDone}, want: &metav1.Condition{Status: "True", Reason: "Succeeded"}},
		"does not":  {p: imageFailed("x"), want: &metav1.Condition{Status: "False", Reason: "Failed", Message: "in-place image update failed: x"}, lacks: true},
		"simulated": {p: Simulate(nil, nil, Goal{Image: true}), want: &metav1.Condition{Status: "True", Reason: "Succeeded"}},
	} {
		sb := &v1alpha1.Sandbox{}
		got := tc.p.ImageCondition()
		if tc.want != nil {
			tc.want.Type = "ImageUpdated"
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got != nil {
			sb.Status.Conditions = []metav1.Condition{*got}
		}
		if LacksImage(sb) != tc.lacks {
			t.Errorf("%s: lacks its image: %v", name, !tc.lacks)
		}
	}
}
