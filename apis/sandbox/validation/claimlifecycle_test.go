// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestValidateClaimDefaults: claimDefaults have a lifecycle that is valid for a claim, and no
// shutdownTime.
func TestValidateClaimDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		lifecycle v1alpha1.SandboxClaimLifecycle
		want      []string
	}{
		"taken":                   {lifecycle: v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: v1alpha1.ShutdownDelete, TTLSecondsAfterFinished: ptr.To(int32(10))}},
		"a time":                  {v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: v1alpha1.ShutdownDelete, ShutdownTime: &metav1.Time{Time: time.Unix(0, 0)}}, []string{"spec.claimDefaults.lifecycle.shutdownTime: Forbidden"}},
		"a negative time to live": {v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: v1alpha1.ShutdownDelete, TTLSecondsAfterFinished: ptr.To(int32(-1))}, []string{"spec.claimDefaults.lifecycle.ttlSecondsAfterFinished: Invalid value"}},
		"no policy of this name":  {v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: "Keep"}, []string{"spec.claimDefaults.lifecycle.shutdownPolicy: Unsupported value"}},
	} {
		t.Run(name, func(t *testing.T) {
			changed := set(t, func(s *v1alpha1.SandboxSet) {
				s.Spec.ClaimDefaults = &v1alpha1.SandboxClaimDefaults{Lifecycle: &test.lifecycle}
			})
			expect(t, ValidateSandboxSet(changed), test.want)
			expect(t, ValidateSandboxSetUpdate(changed, set(t, func(s *v1alpha1.SandboxSet) { s.Name = changed.Name })), test.want)
		})
	}
}

func TestValidateLifecycle(t *testing.T) {
	tests := map[string]struct {
		lifecycle v1alpha1.SandboxClaimLifecycle
		want      []string
	}{
		"nothing":        {},
		"at once":        {lifecycle: v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: ptr.To(int32(0))}},
		"as long as can": {lifecycle: v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: ptr.To(int32(math.MaxInt32))}},
		"long ago":       {lifecycle: v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: time.Unix(0, 0)}}},
		"before it finished": {
			lifecycle: v1alpha1.SandboxClaimLifecycle{TTLSecondsAfterFinished: ptr.To(int32(-1))},
			want:      []string{"spec.lifecycle.ttlSecondsAfterFinished: Invalid value: -1: must be at least 0, which is at once"},
		},
		"no policy of ours": {
			lifecycle: v1alpha1.SandboxClaimLifecycle{ShutdownPolicy: "delete"},
			want:      []string{`spec.lifecycle.shutdownPolicy: Unsupported value: "delete": supported values: "Delete", "DeleteForeground", "Retain"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := claim(func(c *v1alpha1.SandboxClaim) {
				if test.lifecycle.ShutdownPolicy == "" {
					test.lifecycle.ShutdownPolicy = v1alpha1.ShutdownRetain
				}
				c.Spec.Lifecycle = &test.lifecycle
			})
			expect(t, ValidateSandboxClaim(c, DefaultClaimLimits()), test.want)
			expect(t, ValidateSandboxClaimUpdate(c, claim(nil), DefaultClaimLimits()), test.want)
		})
	}
}
