// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Workload is a Deployment or a StatefulSet in the namespace of the install.
type Workload struct {
	// Kind is deployment or statefulset.
	Kind, Name string
}

// ParseWorkload reads what String writes.
func ParseWorkload(text string) (Workload, error) {
	kind, name, _ := strings.Cut(text, "/")
	if kind != "deployment" && kind != "statefulset" || name == "" {
		return Workload{}, fmt.Errorf("%q: want deployment/NAME or statefulset/NAME", text)
	}
	return Workload{Kind: kind, Name: name}, nil
}

// String returns it as kubectl takes it.
func (w Workload) String() string { return w.Kind + "/" + w.Name }

// cluster is the namespace of the install.
type cluster struct {
	client    kubernetes.Interface
	namespace string
}

// scaler is the part of a typed client that both kinds have.
type scaler interface {
	GetScale(ctx context.Context, name string, o metav1.GetOptions) (*autoscalingv1.Scale, error)
	UpdateScale(ctx context.Context, name string, scale *autoscalingv1.Scale, o metav1.UpdateOptions) (*autoscalingv1.Scale, error)
}

func (c cluster) scaler(w Workload) scaler {
	if w.Kind == "statefulset" {
		return c.client.AppsV1().StatefulSets(c.namespace)
	}
	return c.client.AppsV1().Deployments(c.namespace)
}

func (c cluster) replicas(ctx context.Context, w Workload) (int32, error) {
	scale, err := c.scaler(w).GetScale(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("scale of %s: %w", w, err)
	}
	return scale.Spec.Replicas, nil
}

// scale sets how many pods a workload has.
func (c cluster) scale(ctx context.Context, w Workload, replicas int32) error {
	scale, err := c.scaler(w).GetScale(ctx, w.Name, metav1.GetOptions{})
	if err == nil && scale.Spec.Replicas != replicas {
		scale.Spec.Replicas = replicas
		_, err = c.scaler(w).UpdateScale(ctx, w.Name, scale, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("scaling %s to %d: %w", w, replicas, err)
	}
	return nil
}

// pods returns the pods of a workload in which something may run, those that are being deleted
// too.
func (c cluster) pods(ctx context.Context, w Workload) ([]corev1.Pod, error) {
	scale, err := c.scaler(w).GetScale(ctx, w.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("pods of %s: %w", w, err)
	}
	if scale.Status.Selector == "" {
		return nil, fmt.Errorf("pods of %s: %w", w, errors.New("its scale has no selector"))
	}
	list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: scale.Status.Selector})
	if err != nil {
		return nil, fmt.Errorf("pods of %s: %w", w, err)
	}
	return living(list.Items), nil
}

// living returns those of pods that have not ended. A ReplicaSet leaves one that was evicted
// where it is, for as long as the ReplicaSet is there.
func living(pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// MemberContainer is the name of the init container of a member of the store.
const MemberContainer = "restore"

// hasRestored reports whether a pod came up with the data of an id: its init container ended
// well, and its last words are the id.
func hasRestored(pod *corev1.Pod, id string) bool {
	for _, c := range pod.Status.InitContainerStatuses {
		if c.Name == MemberContainer && c.State.Terminated != nil {
			return c.State.Terminated.ExitCode == 0 && c.State.Terminated.Message == id
		}
	}
	return false
}
