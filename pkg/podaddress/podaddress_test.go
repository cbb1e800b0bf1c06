// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podaddress_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/testutil/podstest"
)

func sandbox() *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "box", UID: "sandbox-uid"}}
	sb.Status.PodInfo = v1alpha1.PodInfo{PodIP: "10.0.0.1", PodUID: "pod-uid"}
	return sb
}

// TestVerify checks each way in which the Pod of a sandbox can differ from the status of the
// sandbox.
func TestVerify(t *testing.T) {
	for name, test := range map[string]struct {
		change func(sb *v1alpha1.Sandbox, pod *corev1.Pod)
		want   error
	}{
		"the same":         {func(*v1alpha1.Sandbox, *corev1.Pod) {}, nil},
		"second address":   {func(sb *v1alpha1.Sandbox, pod *corev1.Pod) { addSecondIP(sb, pod, "fd00::1") }, nil},
		"another name":     {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Name = "other" }, podaddress.ErrStale},
		"namespace":        {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Namespace = "team-b" }, podaddress.ErrStale},
		"another UID":      {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.UID = "other" }, podaddress.ErrStale},
		"being deleted":    {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }, podaddress.ErrStale},
		"failed":           {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, podaddress.ErrStale},
		"succeeded":        {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, podaddress.ErrStale},
		"pending":          {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }, podaddress.ErrStale},
		"unknown":          {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Status.Phase = corev1.PodUnknown }, podaddress.ErrStale},
		"another address":  {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Status.PodIPs[0].IP = "10.0.0.2" }, podaddress.ErrStale},
		"no address":       {func(_ *v1alpha1.Sandbox, pod *corev1.Pod) { pod.Status.PodIPs = nil }, podaddress.ErrStale},
		"status of no IP":  {func(sb *v1alpha1.Sandbox, _ *corev1.Pod) { sb.Status.PodInfo.PodIP = "" }, podaddress.ErrStale},
		"status of no UID": {func(sb *v1alpha1.Sandbox, _ *corev1.Pod) { sb.Status.PodInfo.PodUID = "" }, podaddress.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, sb := podstest.Start(t), sandbox()
			pod := podstest.PodOf(sb)
			test.change(sb, pod)
			cluster.Set(pod)
			if err := podaddress.New(cluster.Client(t)).Verify(t.Context(), sb); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// addSecondIP gives a pod a second address, which is the one in the status of its sandbox.
func addSecondIP(sb *v1alpha1.Sandbox, pod *corev1.Pod, ip string) {
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	sb.Status.PodInfo.PodIP = ip
}

// TestVerifyReadsEachTime checks that no earlier answer counts.
func TestVerifyReadsEachTime(t *testing.T) {
	cluster, sb := podstest.Start(t), sandbox()
	verifier := podaddress.New(cluster.Client(t))
	cluster.Set(podstest.PodOf(sb))
	if err := verifier.Verify(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	cluster.Delete(sb.Namespace, sb.Name)
	if err := verifier.Verify(t.Context(), sb); !errors.Is(err, podaddress.ErrStale) {
		t.Errorf("a pod that is gone: %v", err)
	}
}

// TestVerifyWithoutAnswer checks that an error of kube-apiserver does not count as an answer.
func TestVerifyWithoutAnswer(t *testing.T) {
	cluster, sb := podstest.Start(t), sandbox()
	verifier := podaddress.New(cluster.Client(t))
	cluster.Set(podstest.PodOf(sb))
	cluster.SetDown(true)
	if err := verifier.Verify(t.Context(), sb); !errors.Is(err, podaddress.ErrUnavailable) || errors.Is(err, podaddress.ErrStale) {
		t.Errorf("kube-apiserver fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cluster.OnRead(cancel)
	if err := verifier.Verify(ctx, sb); !errors.Is(err, context.Canceled) || errors.Is(err, podaddress.ErrUnavailable) {
		t.Errorf("the caller is gone: %v", err)
	}
}

// TestVerifySimulated checks that a simulated sandbox passes without a read, and that nothing else
// passes without a cluster.
func TestVerifySimulated(t *testing.T) {
	cluster, sb := podstest.Start(t), sandbox()
	alone := podaddress.New(nil)
	if err := alone.Verify(t.Context(), sb); !errors.Is(err, podaddress.ErrStale) {
		t.Errorf("without a cluster: %v", err)
	}
	sb.Status.PodInfo.PodUID = sb.UID
	for _, verifier := range []*podaddress.Verifier{alone, podaddress.New(cluster.Client(t))} {
		if err := verifier.Verify(t.Context(), sb); err != nil {
			t.Error(err)
		}
	}
	if n := cluster.Reads(); n != 0 {
		t.Errorf("%d reads", n)
	}
}
