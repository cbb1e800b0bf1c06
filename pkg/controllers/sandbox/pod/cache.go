// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// CachedPods says which pods this controller needs in the cache, and what of them:
// the pods of sandboxes, and of each a few hundred bytes.
func CachedPods() cache.ByObject {
	return cache.ByObject{
		Label:     labels.SelectorFromValidatedSet(labels.Set{v1alpha1.LabelCreatedBy: v1alpha1.CreatedBySandbox}),
		Transform: trimmed,
	}
}

// trimmed is the transform of the cache. What is no pod, such as the note that one
// was deleted unseen, stays as it is.
func trimmed(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return trim(pod), nil
	}
	return object, nil
}

// trim copies what plans are made from.
func trim(pod *corev1.Pod) *corev1.Pod {
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences:   pod.OwnerReferences,
			Labels:            only(pod.Labels, v1alpha1.LabelCreatedBy, v1alpha1.LabelPodTemplateHash),
			Annotations:       only(pod.Annotations, v1alpha1.AnnotationTemplateMetadata),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase:                 pod.Status.Phase,
			Reason:                pod.Status.Reason,
			Message:               pod.Status.Message,
			PodIP:                 pod.Status.PodIP,
			InitContainerStatuses: trimContainers(pod.Status.InitContainerStatuses),
			ContainerStatuses:     trimContainers(pod.Status.ContainerStatuses),
		},
	}
	for i := range pod.Status.Conditions {
		switch c := &pod.Status.Conditions[i]; c.Type {
		case corev1.PodReady, corev1.PodScheduled, corev1.DisruptionTarget:
			small.Status.Conditions = append(small.Status.Conditions, corev1.PodCondition{
				Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
			})
		}
	}
	return small
}

// trimContainers keeps the containers that wait.
func trimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var small []corev1.ContainerStatus
	for i := range statuses {
		if waiting := statuses[i].State.Waiting; waiting != nil {
			small = append(small, corev1.ContainerStatus{
				Name: statuses[i].Name, State: corev1.ContainerState{Waiting: waiting},
			})
		}
	}
	return small
}

func only(from map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, ok := from[key]; ok {
			if kept == nil {
				kept = make(map[string]string, len(keys))
			}
			kept[key] = value
		}
	}
	return kept
}

// differ says whether two trimmed pods could lead to different plans.
func differ(a, b *corev1.Pod) bool {
	if a.ResourceVersion == b.ResourceVersion {
		return false
	}
	other := *b
	other.ResourceVersion = a.ResourceVersion
	return !equality.Semantic.DeepEqual(a, &other)
}
