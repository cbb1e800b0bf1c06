// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	corev1 "k8s.io/api/core/v1"
)

// Ended reports whether no process of the Pod runs any more.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Mounts reports whether the Pod mounts one of the Secrets or ConfigMaps that are meant.
func Mounts(pod *corev1.Pod, secret, configMap func(name string) bool) bool {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.Secret != nil && secret(volume.Secret.SecretName) ||
			volume.ConfigMap != nil && configMap(volume.ConfigMap.Name) {
			return true
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil && secret(source.Secret.Name) ||
				source.ConfigMap != nil && configMap(source.ConfigMap.Name) {
				return true
			}
		}
	}
	return false
}
