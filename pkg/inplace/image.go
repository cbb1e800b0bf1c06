// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// state is what a pod keeps of an update in place, in its annotation
// AnnotationInplaceUpdateState. It is written by the patch that asks for the image.
type state struct {
	// Image is the one that was asked for.
	Image string `json:"image"`
	// LastContainerStatuses is what ran before, by the names of containers.
	LastContainerStatuses map[string]instance `json:"lastContainerStatuses,omitempty"`
	// Generation is that of the pod before. The resize that goes with it was asked for by
	// then, so what a node has observed since is about that.
	Generation int64 `json:"generation,omitempty"`
	// ResizeRefused is why the API refused the resize that goes with it; empty otherwise.
	ResizeRefused string `json:"resizeRefused,omitempty"`
}

// instance identifies a run of a container. Nodes that are not real tell no IDs.
type instance struct {
	ContainerID string `json:"containerID,omitempty"`
	ImageID     string `json:"imageID,omitempty"`
}

// maxRefusal bounds what a pod keeps of a refusal, in bytes.
const maxRefusal = 1024

func stateOf(pod *corev1.Pod) state {
	var s state
	if err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationInplaceUpdateState]), &s); err != nil {
		return state{}
	}
	return s
}

// imageOf returns how far a pod is whose first container is to run the image that a pod
// template says:
//
//	the spec says another one, and no one asked  StepPatch
//	the image was not pulled, the node retries   StepWait
//	the container waits for what may never come  StepFailed
//	the container of before still runs           StepWait
//	it was made anew, runs and is ready          StepDone
//	anything else                                StepWait
//
// What was asked for is compared with what was asked for, and runs by their IDs: a
// webhook may write an image in other words, a runtime may tell another name of it, and
// two names may be one image.
func imageOf(pod *corev1.Pod, template *runtime.RawExtension, resizeRefused string) Progress {
	first, err := firstOf(template)
	if err != nil {
		return imageFailed(err.Error())
	}
	has := containerOf(pod.Spec.Containers, first.Name)
	if has == nil {
		return imageFailed("the pod has no container " + first.Name)
	}
	status, known := statusOf(pod.Status.ContainerStatuses, first.Name), stateOf(pod)
	if has.Image != first.Image && known.Image != first.Image {
		return askImage(pod, first, status, resizeRefused)
	}
	switch {
	case status == nil:
		return Progress{Step: StepWait}
	case isRetried(status.State.Waiting):
		return Progress{Step: StepWait, Message: cmp.Or(status.State.Waiting.Message, status.State.Waiting.Reason)}
	case Stuck(status.State.Waiting):
		return Progress{Step: StepFailed, Image: ImageFailed, Message: cmp.Or(status.State.Waiting.Message, status.State.Waiting.Reason)}
	case known.Image == first.Image && !anew(known.LastContainerStatuses[first.Name], status, first.Image):
		if status.State.Running != nil {
			return isEnding(pod)
		}
		return Progress{Step: StepWait}
	case status.State.Running != nil && status.Ready:
		return Progress{Step: StepDone, Image: ImageDone}
	}
	return Progress{Step: StepWait}
}

// anew reports whether a container is another run than the one before. Where the node
// told no ID of that, it is when it tells one, or of another image.
func anew(before instance, now *corev1.ContainerStatus, image string) bool {
	if before.ContainerID != "" {
		return now.ContainerID != "" && now.ContainerID != before.ContainerID
	}
	return now.ContainerID != "" || now.Image == image || now.ImageID != before.ImageID
}

// isEnding returns the progress of an image whose container of before still runs.
func isEnding(pod *corev1.Pod) Progress {
	return Progress{Step: StepWait, IsEnding: true, Message: fmt.Sprintf(
		"the process of before has not ended; if it ignores SIGTERM, it is killed after %s (terminationGracePeriodSeconds)", gracePeriod(pod.Spec.TerminationGracePeriodSeconds))}
}

// TimeToEnd returns how long the container of a sandbox may take to end before its image is another; 0
// if its image is not changed.
func TimeToEnd(sb *v1alpha1.Sandbox) time.Duration {
	if sb.Annotations[v1alpha1.AnnotationInplaceUpdate] == "" || !GoalOf(sb).Image {
		return 0 // the common case, without a look at the template
	}
	var decoded struct {
		Spec struct {
			TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds"`
		} `json:"spec"`
	}
	if err := decode(sb.Spec.Template, &decoded); err != nil {
		return 0
	}
	return gracePeriod(decoded.Spec.TerminationGracePeriodSeconds)
}

// gracePeriod returns the grace period of a pod.
func gracePeriod(seconds *int64) time.Duration {
	return time.Duration(ptr.Deref(seconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
}

// HasImage reports whether the first container of a pod template has an image.
func HasImage(template *runtime.RawExtension, image string) bool {
	first, err := firstOf(template)
	return err == nil && first.Image == image
}

// askImage is the patch that asks for an image.
func askImage(pod *corev1.Pod, first *templateContainer, status *corev1.ContainerStatus, resizeRefused string) Progress {
	s := state{
		Image: first.Image, LastContainerStatuses: map[string]instance{},
		Generation: pod.Generation, ResizeRefused: cut(resizeRefused, maxRefusal),
	}
	if status != nil {
		s.LastContainerStatuses[first.Name] = instance{ContainerID: status.ContainerID, ImageID: status.ImageID}
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return imageFailed(err.Error())
	}
	var patch podPatch
	patch.Metadata = &patchMetadata{
		ResourceVersion: pod.ResourceVersion,
		Annotations:     map[string]string{v1alpha1.AnnotationInplaceUpdateState: string(raw)},
	}
	patch.Spec.Containers = []containerPatch{{Name: first.Name, Image: first.Image}}
	if raw, err = json.Marshal(patch); err != nil {
		return imageFailed(err.Error())
	}
	return Progress{Step: StepPatch, ImagePatch: raw}
}

// startSteps are the reasons for which containers wait in a regular start.
var startSteps = []string{"", "ContainerCreating", "PodInitializing"}

// Stuck reports whether a container waits for something that may never come, such as an
// image that cannot be pulled. nil is one that does not wait.
func Stuck(waiting *corev1.ContainerStateWaiting) bool {
	return waiting != nil && !slices.Contains(startSteps, waiting.Reason)
}

// retriedReasons are the reasons of a waiting container whose image could not be pulled, and
// whose node retries the pull after a back-off.
var retriedReasons = []string{"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"}

// isRetried reports whether a container waits for an image whose pull the node retries. nil is
// the state of a container that does not wait.
func isRetried(waiting *corev1.ContainerStateWaiting) bool {
	return waiting != nil && slices.Contains(retriedReasons, waiting.Reason)
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &statuses[i]
}

// cut returns the beginning of a text, of so many bytes at most.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
