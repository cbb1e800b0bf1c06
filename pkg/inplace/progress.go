// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"cmp"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/util/qos"
)

// Progress is how far an update in place is.
type Progress struct {
	// Step is what comes next.
	Step Step
	// Patch is the strategic merge patch of the pod's subresource resize that StepPatch
	// needs, or ImagePatch that of the pod; the other one is nil. They are refused where
	// the pod is not the one that they were made for.
	Patch, ImagePatch []byte
	// Message says why it failed, and while it waits what the node says, if anything.
	Message string
	// IsEnding reports that the container of before has not ended yet. Message says so.
	IsEnding bool
	// Image is how the change of the image ended, if it did.
	Image ImageResult
}

// ImageResult is how the change of an image ended.
type ImageResult int

const (
	// ImageNone means that no image was to be changed, or that it continues.
	ImageNone ImageResult = iota
	// ImageDone means that the container runs the image.
	ImageDone
	// ImageFailed means that it cannot.
	ImageFailed
)

// Step is what comes next in an update in place.
type Step int

const (
	// StepPatch means that the pod is to be patched.
	StepPatch Step = iota
	// StepWait means that the node is about it.
	StepWait
	// StepDone means that the containers have what is wanted.
	StepDone
	// StepFailed means that the pod cannot have all of it, or that the node does not do
	// it, and that all the rest is done. An image that fails is the end at once.
	StepFailed
	// StepRevert means that the node does not do it, and that the pod is still asked to have it.
	StepRevert
)

// Answers are what the API has answered to the patches of a pod.
type Answers struct {
	// Resize and Image say that the resize, or the image, was asked for just now.
	Resize, Image bool
	// ResizeRefused and ImageRefused are why they were refused, empty if not.
	ResizeRefused, ImageRefused string
}

// ProgressOf returns how far a pod is, which is to be given what a pod template says, as
// far as that is the goal. A resize is asked for first, because the patch of the image
// notes on the pod how that was answered; then the node does both at the same time.
func ProgressOf(pod *corev1.Pod, template *runtime.RawExtension, goal Goal, answers Answers) Progress {
	resize := resizeOf(pod, template, goal, answers)
	if !goal.Image || resize.Step == StepPatch {
		return resize
	}
	image := imageOf(pod, template, answers.ResizeRefused)
	switch asks := image.Step == StepPatch; {
	case answers.ImageRefused != "":
		return imageFailed(answers.ImageRefused)
	case asks && answers.Image: // to ask for it again would bring the same again
		return imageFailed("the cluster set another image than it was asked for")
	case asks, image.Step == StepFailed:
		return image
	case image.Step == StepWait:
		return Progress{Step: StepWait, Message: cmp.Or(image.Message, resize.Message), IsEnding: image.IsEnding}
	}
	resize.Image = image.Image
	return resize
}

// resizeOf returns how far a pod is, whose containers are to have the resources that
// a pod template gives the containers of the same name:
//
//	the spec says otherwise  StepFailed where the QoS class would change, else StepPatch
//	the node refused         StepRevert
//	the status says as much  StepDone
//	anything else            StepWait
func resizeOf(pod *corev1.Pod, template *runtime.RawExtension, goal Goal, answers Answers) Progress {
	if answers.ResizeRefused != "" {
		return Failed(answers.ResizeRefused)
	}
	want, err := specOf(template)
	if err != nil {
		return Failed(err.Error())
	}
	to := goal.targetOf(want)
	after := pod.Spec.DeepCopy()
	var patch podPatch
	if !patch.raise(after, to) {
		return goal.ended(follow(pod, to))
	}
	if p, forbidden := changesClass(cmp.Or(pod.Status.QOSClass, classOf(&pod.Spec)), classOf(after)); forbidden {
		return p
	}
	if why := stateOf(pod).ResizeRefused; why != "" {
		return Failed(why)
	}
	if answers.Resize { // to ask for it again would bring the same again
		return Failed("the cluster set other resources than it was asked for")
	}
	patch.Metadata = &patchMetadata{ResourceVersion: pod.ResourceVersion}
	raw, err := json.Marshal(patch)
	if err != nil {
		return Failed(err.Error())
	}
	return Progress{Step: StepPatch, Patch: raw}
}

// ended is the end of a resize of which a part was known before to come to nothing.
func (g Goal) ended(p Progress) Progress {
	if p.Step == StepDone && g.Failed != "" {
		return Failed(g.Failed)
	}
	return p
}

// Simulate returns how an update from one pod template to another ends where there is no
// node that could have too little room, and every image is there. before is nil where it
// is not known.
func Simulate(before, after *runtime.RawExtension, goal Goal) Progress {
	p := goal.ended(simulateResize(before, after))
	if goal.Image {
		p.Image = ImageDone
	}
	return p
}

func simulateResize(before, after *runtime.RawExtension) Progress {
	if before == nil {
		return Progress{Step: StepDone}
	}
	have, err := specOf(before)
	if err != nil {
		return Failed(err.Error())
	}
	want, err := specOf(after)
	if err != nil {
		return Failed(err.Error())
	}
	if p, forbidden := changesClass(classOf(have), classOf(want)); forbidden {
		return p
	}
	return Progress{Step: StepDone}
}

// follow returns how far the node is with a resize that was asked for. A deferred one
// counts as refused, as it does in OpenKruise: when there will be room is not known. It is
// taken back, because the scheduler counts what the pod was asked to have.
func follow(pod *corev1.Pod, want target) Progress {
	if pending := current(pod, corev1.PodResizePending); pending != nil {
		switch pending.Reason {
		case corev1.PodReasonInfeasible:
			return refused(pod, want, infeasible, pending.Message)
		case corev1.PodReasonDeferred:
			return refused(pod, want, infeasible+" for now, it is deferred", pending.Message)
		}
		return Progress{Step: StepWait, Message: pending.Message}
	}
	if running := current(pod, corev1.PodResizeInProgress); running != nil {
		return Progress{Step: StepWait, Message: running.Message}
	}
	if !given(pod.Status.ContainerStatuses, want.Containers, pod.Spec.Containers, want.exact, false) ||
		!given(pod.Status.InitContainerStatuses, want.InitContainers, pod.Spec.InitContainers, "", true) {
		return Progress{Step: StepWait}
	}
	return Progress{Step: StepDone}
}

// current returns a condition that is true of the pod as it is specified now, or was when
// another image was asked for. One that a node has observed of an earlier spec is about
// an earlier resize.
func current(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	since := pod.Generation
	if asked := stateOf(pod).Generation; asked > 0 {
		since = min(since, asked)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == kind && c.Status == corev1.ConditionTrue && (c.ObservedGeneration == 0 || c.ObservedGeneration >= since) {
			return c
		}
	}
	return nil
}

// given reports whether the containers have, by their statuses, what is wanted.
func given(statuses []corev1.ContainerStatus, want, containers []corev1.Container, exact string, sidecars bool) bool {
	for i := range containers {
		wanted := containerOf(want, containers[i].Name)
		if wanted == nil || sidecars && !isSidecar(&containers[i]) {
			continue
		}
		status := statusOf(statuses, wanted.Name)
		if status == nil || status.Resources == nil {
			return false
		}
		if more := raise(status.Resources.DeepCopy(), wanted.Resources, wanted.Name == exact); len(more.Requests)+len(more.Limits) > 0 {
			return false
		}
	}
	return true
}

// refused returns the progress of a resize that the node does not do.
func refused(pod *corev1.Pod, want target, what, why string) Progress {
	if why != "" {
		what += ": " + why
	}
	p := Failed(what)
	if patch := revert(pod, want); !patch.isEmpty() {
		p.Step = StepRevert
	}
	return p
}

// changesClass reports whether a resize would change the QoS class, which a pod has
// for life, and what comes of that.
func changesClass(from, to corev1.PodQOSClass) (Progress, bool) {
	if from == to {
		return Progress{}, false
	}
	return Progress{Step: StepFailed, Message: fmt.Sprintf("%s from %s to %s, resize rejected", forbidden, from, to)}, true
}

func classOf(spec *corev1.PodSpec) corev1.PodQOSClass {
	return qos.ComputePodQOS(&corev1.Pod{Spec: *spec})
}
