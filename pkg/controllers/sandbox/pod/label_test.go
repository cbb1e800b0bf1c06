// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestLabelDelay(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pooled := func() *v1alpha1.Sandbox {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "set"}}
		return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "box",
			Labels: map[string]string{
				v1alpha1.LabelSandboxPool:    "pool",
				v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))},
		}}
	}
	claimed := func(added string) *v1alpha1.Sandbox {
		sandbox := pooled()
		sandbox.OwnerReferences = nil
		sandbox.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedTrue
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationUpdatedMetadataInClaim: added}
		return sandbox
	}
	const nothing = `{"annotations":null,"labels":null}`
	tests := map[string]struct {
		sandbox *v1alpha1.Sandbox
		after   time.Duration
		want    time.Duration
	}{
		"in a burst":          {sandbox: claimed(nothing), want: labelDelay},
		"after it":            {sandbox: claimed(nothing), after: 100 * time.Millisecond},
		"asked for labels":    {sandbox: claimed(`{"annotations":null,"labels":["a"]}`)},
		"asked for notes":     {sandbox: claimed(`{"annotations":["a"],"labels":null}`)},
		"claimed by others":   {sandbox: claimed("")},
		"of the pool, edited": {sandbox: pooled()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := New(Options{Clock: clocktesting.NewFakePassiveClock(now), QuietPeriod: 100 * time.Millisecond})
			o := &observation{sandbox: test.sandbox, now: now.Add(test.after)}
			if got := c.labeler.delay(o); got != 0 {
				t.Errorf("without claims it waits %s", got)
			}
			c.labeler.noteClaim(claimed(nothing), claimed(nothing)) // no claim: nothing left the pool
			if got := c.labeler.delay(o); got != 0 {
				t.Errorf("after a change of a claimed one it waits %s", got)
			}
			c.labeler.noteClaim(pooled(), claimed(nothing))
			if got := c.labeler.delay(o); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
		})
	}
}
