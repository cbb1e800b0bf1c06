// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podaddress checks that the pod of a sandbox has the address in the sandbox's status.
//
// The status is written by controllers. While they are down, the pod can be deleted and its
// address be given to a pod of another tenant. So before a secret or a connection is sent to the
// address, the Pod itself is read.
package podaddress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
)

const (
	// readTimeout bounds one read of a Pod, and the time that it waits for a slot.
	readTimeout = 5 * time.Second
	// maxReads is how many Pods are read at a time. Each may take some MiB of memory. A namespace has at most
	// what it leaves free for others.
	maxReads = 512
)

var (
	// ErrStale means that the address in the status of a sandbox is not, or no longer, that of the
	// sandbox's pod.
	ErrStale = errors.New("the address of the sandbox is not that of its pod")
	// ErrUnavailable means that the Pod could not be read.
	ErrUnavailable = errors.New("the pod of the sandbox cannot be read")
)

// Verifier verifies the addresses of sandboxes.
type Verifier struct {
	pods corev1client.PodsGetter
	// reads are the slots of reads, by namespace.
	reads *fairness.Slots
}

// New returns a Verifier that reads Pods through a client. Without a cluster, the client is nil
// and only simulated sandboxes pass.
func New(pods corev1client.PodsGetter) *Verifier {
	return &Verifier{pods, fairness.NewSlots(maxReads, maxReads)}
}

// Verify returns nil if the Pod of a sandbox exists, has the UID and the address that the status
// of the sandbox has, and is running and not being deleted. It reads the Pod from kube-apiserver
// on each call, and waits while too many of the namespace are being read. Errors wrap ErrStale or
// ErrUnavailable, or are that of ctx.
func (v *Verifier) Verify(ctx context.Context, sb *v1alpha1.Sandbox) error {
	info := &sb.Status.PodInfo
	switch {
	case info.PodIP == "" || info.PodUID == "":
		return fmt.Errorf("%w: the status of the sandbox has no address and UID of a pod", ErrStale)
	case Simulated(sb):
		return nil
	case v.pods == nil:
		return fmt.Errorf("%w: the server has no cluster", ErrStale)
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pod, err := v.read(reading, sb)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: the pod is gone", ErrStale)
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return verify(pod, info)
}

// read reads the Pod of a sandbox.
func (v *Verifier) read(ctx context.Context, sb *v1alpha1.Sandbox) (*corev1.Pod, error) {
	release, err := v.reads.Wait(ctx, sb.Namespace)
	if err != nil {
		return nil, fmt.Errorf("too many pods of namespace %s are read at a time: %w", sb.Namespace, err)
	}
	defer release()
	return v.pods.Pods(sb.Namespace).Get(ctx, sb.Name, metav1.GetOptions{}) // not from the watch cache
}

// PartOf returns a copy of a sandbox with only the fields that Verify and Simulated read, so that the caller
// need not keep a large one.
func PartOf(sb *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	part := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: sb.Namespace, Name: sb.Name, UID: sb.UID}}
	part.Status.PodInfo.PodIP, part.Status.PodInfo.PodUID = sb.Status.PodInfo.PodIP, sb.Status.PodInfo.PodUID
	return part
}

// Simulated reports whether a sandbox is simulated, so that it has no Pod: its status has its own
// UID as that of the pod.
func Simulated(sb *v1alpha1.Sandbox) bool { return sb.Status.PodInfo.PodUID == sb.UID }

// verify compares a Pod with what the status of its sandbox says about it.
func verify(pod *corev1.Pod, info *v1alpha1.PodInfo) error {
	switch {
	case pod.UID != info.PodUID:
		return fmt.Errorf("%w: another pod has its name", ErrStale)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("%w: the pod is being deleted", ErrStale)
	case pod.Status.Phase != corev1.PodRunning:
		return fmt.Errorf("%w: the pod is %s", ErrStale, pod.Status.Phase)
	case !slices.Contains(pod.Status.PodIPs, corev1.PodIP{IP: info.PodIP}):
		return fmt.Errorf("%w: the pod has another address", ErrStale)
	}
	return nil
}
