// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestLabelDelayOfAgentSandbox: trap 6, a router takes a pod for an unused one until it is
// labelled. In a burst of claims without end that takes a second, and no more.
func TestLabelDelayOfAgentSandbox(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	claimed := func(before time.Duration, of string) *v1alpha1.Sandbox {
		return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "box",
			Labels: map[string]string{v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue},
			Annotations: map[string]string{
				v1alpha1.AnnotationUpdatedMetadataInClaim: `{}`, v1alpha1.AnnotationAPI: of,
				v1alpha1.AnnotationClaimTimestamp: now.Add(-before).Format(time.RFC3339),
			},
		}}
	}
	pooled := claimed(0, "")
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "set"}}
	pooled.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))}
	for name, test := range map[string]struct {
		sandbox *v1alpha1.Sandbox
		want    time.Duration
	}{
		"just now":           {claimed(0, v1alpha1.AgentsGroup), labelDelay},
		"a second ago":       {claimed(time.Second, v1alpha1.AgentsGroup), 0},
		"of OpenKruise":      {claimed(time.Second, ""), labelDelay},
		"of OpenKruise, now": {claimed(0, ""), labelDelay},
	} {
		c := New(Options{Clock: clocktesting.NewFakePassiveClock(now), QuietPeriod: time.Minute})
		c.labeler.noteClaim(pooled, test.sandbox)
		if got := c.labeler.delay(&observation{sandbox: test.sandbox, now: now}); got != test.want {
			t.Errorf("%s: it waits %s, want %s", name, got, test.want)
		}
	}
}

// TestKeepUnused: with --enable-warm-pool-eviction=false a pod is made as if its set said
// nothing of evictions, and the sandbox stays as it is.
func TestKeepUnused(t *testing.T) {
	for _, keep := range []bool{false, true} {
		c := New(Options{Clock: clocktesting.NewFakePassiveClock(time.Now()), KeepUnused: keep})
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1alpha1.AnnotationSafeToEvict: v1alpha1.SafeToEvict},
		}}
		sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{}}`)}
		got, err := c.resolver.whole(t.Context(), sandbox)
		if err != nil {
			t.Fatal(err)
		}
		if _, says := got.Annotations[v1alpha1.AnnotationSafeToEvict]; says == keep {
			t.Errorf("keep %v: the pod is made with %v", keep, got.Annotations)
		}
		if sandbox.Annotations[v1alpha1.AnnotationSafeToEvict] == "" {
			t.Errorf("keep %v: the sandbox in the cache was changed", keep)
		}
	}
}
