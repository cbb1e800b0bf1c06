// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestWarningsOfAppliedClaims(t *testing.T) {
	byServer := metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Operation: metav1.ManagedFieldsOperationApply}}}
	byClient := metav1.ObjectMeta{Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}}
	created := metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Operation: metav1.ManagedFieldsOperationUpdate}}}
	hour, never := &metav1.Duration{Duration: time.Hour}, &metav1.Duration{Duration: -time.Second}
	tests := map[string]struct {
		meta metav1.ObjectMeta
		ttl  *metav1.Duration
		want bool
	}{
		"server-side apply": {byServer, hour, true},
		"client-side apply": {byClient, hour, true},
		"create":            {created, hour, false},
		"kept":              {byServer, never, false},
		"at once":           {byServer, &metav1.Duration{}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{ObjectMeta: tc.meta, Spec: v1alpha1.SandboxClaimSpec{TemplateName: "python", TTLAfterCompleted: tc.ttl}}
			got := newStrategy().WarningsOnCreate(t.Context(), claim)
			if warned := len(got) == 1 && strings.HasPrefix(got[0], "spec.ttlAfterCompleted: "); warned != tc.want || len(got) > 1 {
				t.Errorf("warned of %q, want a warning: %t", got, tc.want)
			}
		})
	}
}
