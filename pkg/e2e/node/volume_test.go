// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// TestVolume: a process that is not root writes to the volume of its sandbox, what it wrote is there after
// a pause, and nothing is left of it on the node when the claim is deleted.
func TestVolume(t *testing.T) {
	t.Parallel()
	s := begin(t)
	spec := shellPod()
	spec.InitContainers, spec.Volumes = nil, nil
	spec.Containers[0].Command = []string{"sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(2000))}
	s.fill(1, spec, func(set *v1alpha1.SandboxSet) {
		set.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(
			`{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Mi"}}}}`)}}
	})
	name := s.claim("")
	s.kubectl("exec", name, "--", "sh", "-c", "echo mine >/data/file")
	pod := s.pod(name)
	s.setPaused(name, true)
	s.awaitNoPod(pod)
	s.setPaused(name, false)
	s.sandbox(name, isReady)
	if got, want := s.kubectl("exec", name, "--", "sh", "-c", "cat /data/file; stat -c %g /data/file"), "mine\n2000\n"; got != want {
		t.Errorf("after a pause the volume has %q, want %q", got, want)
	}

	claims, err := s.kube.CoreV1().PersistentVolumeClaims(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var folder string
	for _, claim := range claims.Items {
		if metav1.IsControlledBy(&claim, s.sandbox(name, isReady)) {
			folder = filepath.Join(plane.NodeFolder(nodeName), controlplane.NodeLib, "simulated", claim.Spec.VolumeName)
		}
	}
	if content, err := os.ReadFile(filepath.Join(folder, "file")); err != nil || string(content) != "mine\n" {
		t.Errorf("the node keeps %q in %s: %v", content, folder, err)
	}
	if err := s.SandboxClaims(s.namespace).Delete(t.Context(), claimName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(func(context.Context) error {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			return fmt.Errorf("%s is still there: %w", folder, err)
		}
		return nil
	})
}
