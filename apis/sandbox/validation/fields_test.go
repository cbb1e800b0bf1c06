// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// expect compares errors with their expected texts. An expected text may stop
// early, where the rest is Kubernetes' own wording.
func expect(t *testing.T, errs field.ErrorList, want []string) {
	t.Helper()
	var got []string
	for i, err := range errs {
		text := err.Error()
		if i < len(want) && len(text) > len(want[i]) {
			text = text[:len(want[i])]
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s\nin full: %v", diff, errs)
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: "1"}
}

func rawTemplate(t *testing.T) *runtime.RawExtension {
	t.Helper()
	raw, err := v1alpha1.RawTemplate(corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "busybox"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func rawJSON(text string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(text)}
}

func condition() metav1.Condition {
	return metav1.Condition{
		Type: "Completed", Status: metav1.ConditionTrue, Reason: "AllReplicasClaimed",
		LastTransitionTime: metav1.Unix(1700000000, 0),
	}
}

const (
	longName = "a123456789012345678901234567890123456789012345678901234567890123" // 64 characters
	yet      = "Forbidden: not supported by this version of Sandlot yet: "
)
