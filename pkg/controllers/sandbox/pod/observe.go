// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// CachedPods selects the pods that this controller needs in the cache, and what of them:
// the pods of sandboxes, and of each a few hundred bytes.
func CachedPods() cache.ByObject {
	return cache.ByObject{
		Label:     labels.SelectorFromValidatedSet(labels.Set{v1alpha1.LabelCreatedBy: v1alpha1.CreatedBySandbox}),
		Transform: trimmed,
	}
}

// trimmed is the transform of the cache. What is no pod, such as a tombstone, stays as it
// is.
func trimmed(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return trim(pod), nil
	}
	return object, nil
}

// trim returns a copy of a pod with what plans are made from.
func trim(pod *corev1.Pod) *corev1.Pod {
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp,
			OwnerReferences:   controllerOf(pod),
			Labels:            only(pod.Labels, v1alpha1.LabelCreatedBy, v1alpha1.LabelPodTemplateHash, v1alpha1.LabelAgentRuntime),
			Annotations:       only(pod.Annotations, v1alpha1.AnnotationTemplateMetadata),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, RestartPolicy: restartPolicyOf(&pod.Spec)},
		Status: corev1.PodStatus{
			Phase:                 pod.Status.Phase,
			Reason:                pod.Status.Reason,
			Message:               pod.Status.Message,
			PodIP:                 pod.Status.PodIP,
			StartTime:             pod.Status.StartTime,
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

// controllerOf returns the owner reference of a pod that is its controller. Users can add thousands of others.
func controllerOf(pod *corev1.Pod) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// restartPolicyOf returns the restart policy of a pod, or nothing if one of its containers has its own.
func restartPolicyOf(spec *corev1.PodSpec) corev1.RestartPolicy {
	for i := range spec.Containers {
		if spec.Containers[i].RestartPolicy != nil {
			return ""
		}
	}
	return spec.RestartPolicy
}

// trimContainers keeps the containers that wait, and those that were restarted.
func trimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var small []corev1.ContainerStatus
	for i := range statuses {
		state := statuses[i].State
		if state.Waiting == nil && statuses[i].RestartCount == 0 {
			continue
		}
		state.Terminated = nil
		small = append(small, corev1.ContainerStatus{Name: statuses[i].Name, State: state, RestartCount: statuses[i].RestartCount})
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

// differ reports whether two trimmed pods could lead to different plans.
func differ(a, b *corev1.Pod) bool {
	if a.ResourceVersion == b.ResourceVersion {
		return false
	}
	other := *b
	other.ResourceVersion = a.ResourceVersion
	return !equality.Semantic.DeepEqual(a, &other)
}

// observe reads what the cache shows. What is expected of the cache is read first: a pod
// that arrives in between is then seen twice and not missed.
func (c *Controller) observe(ctx context.Context, key types.NamespacedName, sandbox *v1alpha1.Sandbox) (*observation, error) {
	revision, err := podtemplate.SandboxRevision(sandbox)
	if err != nil {
		return nil, reconcile.TerminalError(err)
	}
	o := &observation{
		sandbox:       sandbox,
		revision:      revision,
		isPodExpected: c.memory.podExpectations.remaining(key) > 0,
		isInBackoff:   c.memory.createBackoff.remaining(key) > 0,
		nodes:         c.nodes,
		now:           c.clock.Now(),
	}
	o.pod, err = getPod(ctx, c.client, key, client.UnsafeDisableDeepCopy)
	return o, err
}

// readFromServer asks the server for the pod, and plans with that.
func (c *Controller) readFromServer(ctx context.Context, key types.NamespacedName, o *observation) (plan, error) {
	pod, err := getPod(ctx, c.reader, key)
	if err != nil {
		return plan{}, err
	}
	if pod != nil {
		pod = trim(pod)
	}
	o.pod, o.isFromServer, o.isPodExpected = pod, true, false
	return decide(o), nil
}

// getPod returns the pod of a name, or nil.
func getPod(ctx context.Context, reader client.Reader, key types.NamespacedName, opts ...client.GetOption) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := reader.Get(ctx, key, pod, opts...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting Pod %s: %w", key, err)
	}
	return pod, nil
}
