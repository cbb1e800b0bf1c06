// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rebind

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
)

// TestKeepsEvents: what is reported of a claim while it is looked at is looked at next.
func TestKeepsEvents(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	r := New(reconciler.New(clock, func(error) time.Duration { return 0 }), nil, clock)
	t.Cleanup(r.reconciler.Queue.ShutDown)
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "box", Labels: map[string]string{v1alpha1.LabelClaimName: "mine"},
		Annotations: map[string]string{v1alpha1.AnnotationOwner: "claim-uid", v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup},
	}}
	r.ObserveSandboxDeleted(sb)
	before, _ := r.get("claim-uid")
	r.ObserveSandboxDeleted(sb)
	if r.forget("claim-uid", before); r.NamespaceOf("claim-uid") == "" {
		t.Error("the last event is forgotten")
	}
	now, _ := r.get("claim-uid")
	if r.forget("claim-uid", now); r.NamespaceOf("claim-uid") != "" {
		t.Error("it is not forgotten when there is no event")
	}
}
