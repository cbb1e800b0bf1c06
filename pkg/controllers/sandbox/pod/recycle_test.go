// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
)

// begun is a sandbox that begins to be recycled.
func begun(s *v1alpha1.Sandbox) { recycle.Begin(&s.Status, s.Generation, now) }

// cleaned is one whose pod is gone.
func cleaned(s *v1alpha1.Sandbox) {
	begun(s)
	recycle.Clean(&s.Status, s.Generation, now)
}

func pooled(s *v1alpha1.Sandbox) {
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "set", Controller: new(true),
	}}
}

// TestDecideRecycling: the pod is deleted, and no other is made before the sandbox is in
// its pool; that one runs it.
func TestDecideRecycling(t *testing.T) {
	started, completed := v1alpha1.ReasonRecyclingStarted, v1alpha1.ReasonRecyclingCompleted
	type recycled struct {
		action  action
		phase   v1alpha1.SandboxPhase
		ready   metav1.ConditionStatus
		reason  string
		count   int32
		address string
	}
	waiting := func(a action, reason string) recycled {
		return recycled{action: a, phase: "Recycling", ready: no, reason: reason}
	}
	back := recycled{phase: "Running", ready: yes, reason: v1alpha1.ReasonRecyclingSucceeded, count: 1, address: "10.0.0.1"}
	tests := map[string]struct {
		sandbox []func(*v1alpha1.Sandbox)
		pod     *corev1.Pod
		sure    bool
		want    recycled
	}{
		"its pod runs":                      {sandbox: []func(*v1alpha1.Sandbox){begun}, pod: newPod(runs("True")), want: waiting(actionRemove, started)},
		"its pod runs, paused":              {sandbox: []func(*v1alpha1.Sandbox){begun, paused}, pod: newPod(runs("True")), want: waiting(actionRemove, started)},
		"its pod runs, in a pool":           {sandbox: []func(*v1alpha1.Sandbox){begun, pooled}, pod: newPod(runs("True")), want: waiting(actionRemove, started)},
		"its pod failed":                    {sandbox: []func(*v1alpha1.Sandbox){begun}, pod: newPod(podPhase("Failed")), want: waiting(actionRemove, started)},
		"its pod is being deleted":          {sandbox: []func(*v1alpha1.Sandbox){begun}, pod: newPod(runs("True"), terminating), want: waiting(actionNone, started)},
		"its pod is gone, says the cache":   {sandbox: []func(*v1alpha1.Sandbox){begun}, want: waiting(actionReadFromServer, started)},
		"another's pod, says the cache":     {sandbox: []func(*v1alpha1.Sandbox){begun}, pod: newPod(foreign), want: waiting(actionReadFromServer, started)},
		"its pod is gone":                   {sandbox: []func(*v1alpha1.Sandbox){begun}, sure: true, want: waiting(actionNone, completed)},
		"another's pod":                     {sandbox: []func(*v1alpha1.Sandbox){begun}, pod: newPod(foreign), sure: true, want: waiting(actionNone, completed)},
		"clean, not in its pool":            {sandbox: []func(*v1alpha1.Sandbox){cleaned}, want: waiting(actionNone, completed)},
		"clean, not in its pool, paused":    {sandbox: []func(*v1alpha1.Sandbox){cleaned, paused}, want: waiting(actionNone, completed)},
		"in its pool":                       {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, want: waiting(actionCreate, completed)},
		"in its pool, paused":               {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled, paused}, want: waiting(actionCreate, completed)},
		"its new pod starts":                {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, pod: newPod(), want: waiting(actionNone, completed)},
		"its new pod runs and is not ready": {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, pod: newPod(runs("False")), want: waiting(actionNone, completed)},
		"its new pod has no address": {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, pod: newPod(runs("True"), func(p *corev1.Pod) { p.Status.PodIP = "" }),
			want: waiting(actionNone, completed)},
		"its new pod is being deleted": {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, pod: newPod(runs("True"), terminating), want: waiting(actionNone, completed)},
		"its new pod is ready":         {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, pod: newPod(runs("True")), want: back},
		"its new pod failed": {sandbox: []func(*v1alpha1.Sandbox){cleaned, pooled}, pod: newPod(podPhase("Failed")),
			want: recycled{phase: "Failed", ready: no, reason: v1alpha1.ReasonRecyclingFailed}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := observation{sandbox: newSandbox(test.sandbox...), pod: test.pod, isFromServer: test.sure, revision: revision, now: now}
			p := decide(&o)
			got := recycled{action: p.action, phase: p.status.Phase, count: p.status.RecycledCount, address: p.status.PodInfo.PodIP}
			for _, c := range p.status.Conditions {
				switch c.Type {
				case v1alpha1.SandboxConditionReady:
					got.ready = c.Status
				case v1alpha1.SandboxConditionRecycling:
					got.reason = c.Reason
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(recycled{})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if p.wantsFinalizer || p.hasForeignPod {
				t.Errorf("plan %+v", p)
			}
			if p.action == actionNone {
				o.sandbox = o.sandbox.DeepCopy()
				o.sandbox.Status = p.status
				if diff := cmp.Diff(p.status, decide(&o).status, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("status the second time (-first +second):\n%s", diff)
				}
			}
		})
	}
}
