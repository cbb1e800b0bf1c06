// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestLiving: a restore waits for pods that may still write, and not for those that have ended
// and stay.
func TestLiving(t *testing.T) {
	var pods []corev1.Pod
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodFailed, corev1.PodRunning, corev1.PodSucceeded, corev1.PodUnknown, ""} {
		pods = append(pods, corev1.Pod{Status: corev1.PodStatus{Phase: phase}})
	}
	var got []corev1.PodPhase
	for _, pod := range living(pods) {
		got = append(got, pod.Status.Phase)
	}
	if want := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodUnknown, ""}; !slices.Equal(got, want) {
		t.Errorf("pods in which something may run are %q, want %q", got, want)
	}
}
