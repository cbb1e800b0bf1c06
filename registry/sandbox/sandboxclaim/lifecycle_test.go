// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestLifecycleWarnings(t *testing.T) {
	const past = "spec.lifecycle.shutdownTime: 2026-09-01T11:00:00Z has passed already; the claim ends at once"
	const first = "spec.ttlAfterCompleted: the claim is deleted 30m0s after it is Completed; if its lifecycle has not ended by then, it never does. -1s keeps the claim"
	spec := func(ttl time.Duration, end *metav1.Time) v1alpha1.SandboxClaimSpec {
		return v1alpha1.SandboxClaimSpec{
			TTLAfterCompleted: &metav1.Duration{Duration: ttl}, Lifecycle: &v1alpha1.SandboxClaimLifecycle{ShutdownTime: end},
		}
	}
	tests := map[string]struct {
		old, spec v1alpha1.SandboxClaimSpec
		want      []string
	}{
		"none":                      {spec: v1alpha1.SandboxClaimSpec{Lifecycle: &v1alpha1.SandboxClaimLifecycle{}}},
		"ahead":                     {spec: spec(-1, at(time.Hour))},
		"past":                      {spec: spec(-1, at(-time.Hour)), want: []string{past}},
		"passed meanwhile":          {old: spec(-1, at(-time.Hour)), spec: spec(-1, at(-time.Hour))},
		"before the TTL":            {spec: spec(30*time.Minute, at(29*time.Minute))},
		"after the TTL":             {spec: spec(30*time.Minute, at(31*time.Minute)), want: []string{first}},
		"when finished, or the TTL": {spec: spec(30*time.Minute, nil), want: []string{first}},
		"known":                     {old: spec(30*time.Minute, nil), spec: spec(30*time.Minute, nil)},
		"a lifecycle is added": {
			old: v1alpha1.SandboxClaimSpec{TTLAfterCompleted: &metav1.Duration{Duration: 30 * time.Minute}}, spec: spec(30*time.Minute, nil), want: []string{first},
		},
		"a TTL is added": {old: spec(-1, nil), spec: spec(30*time.Minute, nil), want: []string{first}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim, old := &v1alpha1.SandboxClaim{Spec: tc.spec}, &v1alpha1.SandboxClaim{Spec: tc.old}
			if diff := cmp.Diff(tc.want, newStrategy().WarningsOnUpdate(t.Context(), claim, old)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
