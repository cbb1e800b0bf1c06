// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// TestAResumeWaitsForTheRuntime: a sandbox that had one set up gets its address, and runs
// when a server has said how it went, or no server has for too long.
func TestAResumeWaitsForTheRuntime(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		tell func(*v1alpha1.SandboxStatus)
		step step
		want metav1.ConditionStatus
	}{
		"set up": {func(status *v1alpha1.SandboxStatus) { claims.EndSetupAgain(status, nil, now) }, resumed, metav1.ConditionTrue},
		"never":  {func(*v1alpha1.SandboxStatus) {}, settingUp, metav1.ConditionFalse},
	} {
		sandbox := newSandbox("box", "busybox")
		sandbox.UID, sandbox.Annotations = "uid", map[string]string{v1alpha1.AnnotationInitRuntimeRequest: "v1:sealed"}
		sandbox.Status.Phase = v1alpha1.SandboxPaused
		sandbox.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionRuntimeInitialized, Status: metav1.ConditionTrue}}
		take := func(want step) {
			t.Helper()
			if got := stepOf(sandbox, time.Now()); got != want {
				t.Fatalf("%s: step %d, want %d", name, got, want)
			}
			status, err := statusAfter(want, sandbox, sandbox.Spec.Template, now)
			if err != nil {
				t.Fatal(err)
			}
			sandbox.Status = status
		}
		take(resume)
		take(start)
		if sandbox.Status.Phase != v1alpha1.SandboxResuming || sandbox.Status.PodInfo.PodIP == "" || !claims.SetupPending(&sandbox.Status) {
			t.Errorf("%s: does not wait: %+v", name, sandbox.Status)
		}
		test.tell(&sandbox.Status)
		take(test.step)
		c := meta.FindStatusCondition(sandbox.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
		if sandbox.Status.Phase != v1alpha1.SandboxRunning || c.Status != test.want || claims.SetupPending(&sandbox.Status) {
			t.Errorf("%s: ends with %+v", name, sandbox.Status)
		}
	}
}
