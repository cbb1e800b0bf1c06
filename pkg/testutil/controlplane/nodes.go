// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	defaultNodes     = 4
	defaultNodeGrace = 15 * time.Minute
	podsPerNode      = "10000"
	// kwokAnnotation marks a node that only kwok speaks for.
	kwokAnnotation = "kwok.x-k8s.io/node"
	kwokNode       = "fake"
)

// AnnotationResize on a pod says what its node makes of a resize: Infeasible and
// Deferred are what a kubelet would say, ResizeNever leaves it undone. Without it
// the containers have at once what is asked.
const AnnotationResize = "testing.sandlot.io/resize"

// ResizeNever is the value of AnnotationResize of a pod whose resize is never done.
const ResizeNever = "Never"

// AnnotationImage on a pod says what its node makes of another image: the reason for which
// the container waits then, or ImageNever, which leaves it undone. Without it the
// container is run anew at once.
const AnnotationImage = "testing.sandlot.io/image"

// ImageNever is the value of AnnotationImage of a pod whose image is never changed.
const ImageNever = "Never"

// createNodes creates the simulated nodes, or leaves those of the last time.
func createNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	for i := range count {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(fmt.Sprintf("node-%d", i)), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating a node: %w", err)
		}
	}
	return nil
}

func newNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("10k"),
		corev1.ResourceMemory:           resource.MustParse("100Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		corev1.ResourcePods:             resource.MustParse(podsPerNode),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{kwokAnnotation: kwokNode},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
				"type":                 "kwok",
			},
		},
		Status: corev1.NodeStatus{Allocatable: room, Capacity: room},
	}
}

// awaitNodes returns when the nodes take pods, and the namespace default has the
// service account without which no pod is let in.
func awaitNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, readyInterval, startPatience, true, func(ctx context.Context) (bool, error) {
		last = checkNodes(ctx, client, count)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for nodes: %w, at last: %w", err, last)
	}
	return nil
}

func checkNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for i := range nodes.Items {
		if takesPods(&nodes.Items[i]) {
			ready++
		}
	}
	if ready < count {
		return fmt.Errorf("%d of %d nodes are ready", ready, count)
	}
	return nil
}

func takesPods(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0
		}
	}
	return false
}
