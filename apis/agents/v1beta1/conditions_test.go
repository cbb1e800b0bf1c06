// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hub "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var (
	born  = metav1.NewTime(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	later = metav1.NewTime(born.Add(time.Minute))
	last  = metav1.NewTime(born.Add(time.Hour))
)

func stored(phase hub.SandboxPhase, conditions ...metav1.Condition) *hub.Sandbox {
	return &hub.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", Generation: 7, CreationTimestamp: born},
		Status:     hub.SandboxStatus{Phase: phase, Conditions: conditions},
	}
}

func has(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 6, LastTransitionTime: later}
}

func ready(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return has(hub.SandboxConditionReady, status, reason, message)
}

func with(sandbox *hub.Sandbox, changes ...func(*hub.Sandbox)) *hub.Sandbox {
	for _, change := range changes {
		change(sandbox)
	}
	return sandbox
}

func located(s *hub.Sandbox) {
	s.Status.NodeName, s.Status.SandboxIP = "node", "10.0.0.1"
	s.Status.PodInfo.PodUID = "pod"
}

// noService is why there is no Service of the name py3.12.
var noService = hub.CheckServiceName(func() *bool { wanted := true; return &wanted }(), "py3.12").Error()

func waits(s *hub.Sandbox) { s.Status.PodInfo.PodUID = "pod" }

func suspend(s *hub.Sandbox)      { s.Spec.Paused = true }
func wantsService(s *hub.Sandbox) { wanted := true; s.Spec.Service = &wanted }
func hasService(s *hub.Sandbox)   { s.Status.ServiceFQDN = "box.ns.svc.cluster.local" }

func short(c metav1.Condition) string {
	text := fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason)
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

const (
	notSuspended = "Suspended False NotSuspended: Sandbox is not suspended"
	scheduled    = "PodScheduled True PodScheduled"
)

func TestConditionsOf(t *testing.T) {
	const (
		yes, no = metav1.ConditionTrue, metav1.ConditionFalse
		podDown = "Pod has been terminated. Sandbox is suspended"
	)
	podReady := ready(yes, hub.ReasonPodReady, "")
	for name, test := range map[string]struct {
		sandbox *hub.Sandbox
		want    []string
	}{
		"ready": {
			with(stored(hub.SandboxRunning, podReady), located),
			[]string{scheduled, "Ready True DependenciesReady: Pod is Ready", notSuspended},
		},
		"ready, with a Service": {
			with(stored(hub.SandboxRunning, podReady), located, wantsService, hasService),
			[]string{scheduled, "Ready True DependenciesReady: Pod is Ready; Service Exists", notSuspended},
		},
		"ready, its Service to come": {
			with(stored(hub.SandboxRunning, podReady), located, wantsService),
			[]string{scheduled, "Ready False DependenciesNotReady: Pod is Ready; Service does not exist", notSuspended},
		},
		"ready without an address": {
			with(stored(hub.SandboxRunning, podReady), func(s *hub.Sandbox) { s.Status.NodeName = "node" }),
			[]string{scheduled, "Ready False DependenciesNotReady: Pod is Ready but has no podIPs yet", notSuspended},
		},
		"not ready": {
			with(stored(hub.SandboxRunning, ready(no, hub.ReasonPodReady, "ContainersNotReady")), located),
			[]string{scheduled, "Ready False DependenciesNotReady: Pod is Running but not Ready", notSuspended},
		},
		"new": {
			with(stored(hub.SandboxPending), wantsService),
			[]string{"Ready False DependenciesNotReady: Pod does not exist; Service does not exist", notSuspended},
		},
		"starts": {
			stored(hub.SandboxPending, ready(no, hub.ReasonPodReady, "")),
			[]string{
				"PodScheduled Unknown PodSchedulingUnknown: Pod does not say whether it is scheduled",
				"Ready False DependenciesNotReady: Pod exists with phase: Pending", notSuspended,
			},
		},
		"no node takes it": {
			stored(hub.SandboxPending, ready(no, hub.ReasonUnschedulable, "0/1 nodes")),
			[]string{
				"PodScheduled False Unschedulable: 0/1 nodes",
				"Ready False DependenciesNotReady: Pod exists with phase: Pending", notSuspended,
			},
		},
		"cannot start": {
			stored(hub.SandboxPending, ready(no, hub.ReasonStartContainerFailed, "no such image")),
			[]string{scheduled, "Ready False DependenciesNotReady: Pod exists with phase: Pending", notSuspended},
		},
		"refused": {
			stored(hub.SandboxPending, ready(no, hub.ReasonPodCreateFailed, "over quota")),
			[]string{"Ready False ReconcilerError: Error seen: over quota", notSuspended},
		},
		"lost its pod": {
			stored(hub.SandboxResuming, ready(no, hub.ReasonPodDeleted, "gone")),
			[]string{"Ready False DependenciesNotReady: Pod does not exist", notSuspended},
		},
		"to be suspended": {
			with(stored(hub.SandboxRunning, podReady), located, suspend),
			[]string{
				scheduled, "Ready False SandboxSuspended: Sandbox is suspending",
				"Suspended Unknown PodStateUnknown: The state of the pod is not known yet",
			},
		},
		"suspending": {
			with(stored(hub.SandboxPaused, ready(no, hub.ReasonPodReady, ""), has(hub.SandboxConditionPaused, no, hub.ReasonPending, "")), suspend),
			[]string{
				"Ready False SandboxSuspended: Sandbox is suspending",
				"Suspended False PodTerminating: Pod is terminating. Sandbox is suspending",
			},
		},
		"a name that no Service can have": {
			with(stored(hub.SandboxRunning, podReady), located, wantsService, func(s *hub.Sandbox) { s.Name = "py3.12" }),
			[]string{scheduled, "Ready False DependenciesNotReady: Pod is Ready; Service does not exist: " + noService, notSuspended},
		},
		"suspending, and its pod is still there": {
			with(stored(hub.SandboxPaused, ready(no, hub.ReasonPodReady, ""), has(hub.SandboxConditionPaused, no, hub.ReasonPending, "")), located, suspend),
			[]string{
				scheduled, "Ready False SandboxSuspended: Sandbox is suspending",
				"Suspended False PodTerminating: Pod is terminating. Sandbox is suspending",
			},
		},
		"expired, and its pod is still there": {
			with(stored(hub.SandboxPaused, ready(no, hub.ReasonSandboxExpired, "x")), located),
			[]string{scheduled, "Ready False SandboxExpired: Sandbox has expired", notSuspended},
		},
		"suspending before it is scheduled": {
			with(stored(hub.SandboxPaused, ready(no, hub.ReasonUnschedulable, "x"), has(hub.SandboxConditionPaused, no, hub.ReasonPending, "")), waits, suspend),
			[]string{
				"PodScheduled Unknown PodSchedulingUnknown: Pod does not say whether it is scheduled", "Ready False SandboxSuspended: Sandbox is suspending",
				"Suspended False PodTerminating: Pod is terminating. Sandbox is suspending",
			},
		},
		"a stranger's pod": {
			with(stored(hub.SandboxPaused, ready(no, hub.ReasonPodReady, ""), has(hub.SandboxConditionPaused, no, hub.ReasonPodNotOwned, "whose")), suspend),
			[]string{"Ready False SandboxSuspended: Sandbox is suspending", "Suspended False PodNotOwned: Refused to delete pod because it is not owned by this sandbox"},
		},
		"suspended": {
			with(stored(hub.SandboxPaused, ready(no, hub.ReasonPodReady, ""), has(hub.SandboxConditionPaused, yes, hub.ReasonStopPauseSucceed, "")), suspend),
			[]string{"Ready False SandboxSuspended: Sandbox is suspended", "Suspended True PodTerminated: " + podDown},
		},
		"succeeded": {
			with(stored(hub.SandboxSucceeded, ready(no, hub.ReasonPodSucceeded, "")), located),
			[]string{
				"Finished True PodSucceeded: Pod completed successfully", scheduled,
				"Ready False PodSucceeded: Pod completed successfully", notSuspended,
			},
		},
		"failed": {
			with(stored(hub.SandboxFailed, ready(no, hub.ReasonEvicted, "memory")), located),
			[]string{"Finished True PodFailed: Pod failed", scheduled, "Ready False PodFailed: Pod failed", notSuspended},
		},
		"expired": {
			stored(hub.SandboxPaused, ready(no, hub.ReasonSandboxExpired, "x"), has(hub.SandboxConditionPaused, yes, hub.ReasonStopPauseSucceed, "")),
			[]string{"Ready False SandboxExpired: Sandbox has expired", notSuspended},
		},
		"expired after its end": {
			stored(hub.SandboxSucceeded, ready(no, hub.ReasonSandboxExpired, "x")),
			[]string{"Finished True PodSucceeded: Pod completed successfully", "Ready False SandboxExpired: Sandbox has expired", notSuspended},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range ConditionsOf(test.sandbox) {
				got = append(got, short(c))
				if c.ObservedGeneration != 7 || c.LastTransitionTime.IsZero() {
					t.Errorf("%s is of generation %d, since %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// The time of Finished is the clock of ttlSecondsAfterFinished: it is when the pod ended, and
// nothing that comes later moves it.
func TestTimesOfConditions(t *testing.T) {
	finished := has(hub.SandboxConditionFinished, metav1.ConditionTrue, hub.ReasonPodFailed, "")
	suspended := has(hub.SandboxConditionSuspended, metav1.ConditionFalse, hub.ReasonNotSuspended, "")
	resumed := has(hub.SandboxConditionResumed, metav1.ConditionTrue, hub.ReasonCreatePod, "")
	resumed.LastTransitionTime = last
	moved := ready(metav1.ConditionFalse, hub.ReasonSandboxExpired, "")
	moved.LastTransitionTime = last
	for name, test := range map[string]struct {
		sandbox *hub.Sandbox
		kind    string
		want    metav1.Time
	}{
		"Finished, kept":               {stored(hub.SandboxFailed, moved, finished), ConditionFinished, later},
		"Finished of the other group":  {stored(hub.SandboxFailed, ready(metav1.ConditionFalse, hub.ReasonPodFailed, "")), ConditionFinished, later},
		"Ready":                        {stored(hub.SandboxFailed, moved, finished), ConditionReady, last},
		"Ready of a new one":           {stored(hub.SandboxPending), ConditionReady, born},
		"Suspended, never":             {stored(hub.SandboxRunning), ConditionSuspended, born},
		"Suspended, kept":              {stored(hub.SandboxRunning, resumed, suspended), ConditionSuspended, later},
		"Suspended of the other group": {stored(hub.SandboxRunning, resumed), ConditionSuspended, last},
	} {
		for _, c := range ConditionsOf(test.sandbox) {
			if c.Type == test.kind && !c.LastTransitionTime.Equal(&test.want) {
				t.Errorf("%s: since %v, want %v", name, c.LastTransitionTime, test.want)
			}
		}
	}
}

func TestStatusOf(t *testing.T) {
	got := StatusOf(with(stored(hub.SandboxRunning), located, hasService))
	got.Conditions = nil
	want := SandboxStatus{
		ServiceFQDN: "box.ns.svc.cluster.local", Service: "box", NodeName: "node", PodIPs: []string{"10.0.0.1"},
		Selector: "agents.x-k8s.io/sandbox-name-hash=" + hub.NameHash("box"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// What a sandbox does not say has the meaning of the group that it was made in.
func TestShutdownPolicyOfTheOtherGroup(t *testing.T) {
	made := stored(hub.SandboxRunning)
	claimed := with(stored(hub.SandboxRunning), func(s *hub.Sandbox) {
		s.Annotations = map[string]string{hub.AnnotationAPI: hub.AgentsGroup}
	})
	for want, sandbox := range map[ShutdownPolicy]*hub.Sandbox{ShutdownDelete: made, ShutdownRetain: claimed} {
		var seen Sandbox
		SandboxFromHub(sandbox, &seen)
		if seen.Spec.ShutdownPolicy != want {
			t.Errorf("policy %q, want %q", seen.Spec.ShutdownPolicy, want)
		}
	}
	var back hub.Sandbox
	SandboxToHub(&Sandbox{Spec: SandboxSpec{OperatingMode: OperatingModeSuspended}}, &back)
	if back.Spec.ShutdownPolicy != hub.ShutdownRetain || !back.Spec.Paused {
		t.Errorf("stored is %+v", back.Spec)
	}
}
