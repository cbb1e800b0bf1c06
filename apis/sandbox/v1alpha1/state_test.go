// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStateOf(t *testing.T) {
	now := time.Unix(1700000000, 0)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	yes, no := true, false

	pooled := func(s *Sandbox) {
		s.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxSet", Name: "pool", Controller: &yes,
		}}
	}
	owner := func(change func(*metav1.OwnerReference)) func(*Sandbox) {
		return func(s *Sandbox) {
			pooled(s)
			change(&s.OwnerReferences[0])
		}
	}
	phase := func(phase SandboxPhase) func(*Sandbox) { return func(s *Sandbox) { s.Status.Phase = phase } }
	ready := func(status metav1.ConditionStatus) func(*Sandbox) {
		return func(s *Sandbox) { s.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status}} }
	}
	token := func(status metav1.ConditionStatus) func(*Sandbox) {
		return func(s *Sandbox) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: "RuntimeInitialized", Status: status})
		}
	}
	paused := func(s *Sandbox) { s.Spec.Paused = true }
	deleted := func(s *Sandbox) { s.DeletionTimestamp = at(0) }
	shutdown := func(d time.Duration) func(*Sandbox) { return func(s *Sandbox) { s.Spec.ShutdownTime = at(d) } }
	all := func(changes ...func(*Sandbox)) []func(*Sandbox) { return changes }

	tests := map[string]struct {
		sandbox []func(*Sandbox)
		state   State
	}{
		"1 deleted":                   {all(deleted), StateDead},
		"1 deleted before all else":   {all(deleted, pooled, phase(SandboxRunning), ready("True"), shutdown(-1)), StateDead},
		"2 shutdown":                  {all(shutdown(-time.Second), pooled, phase(SandboxRunning), ready("True")), StateDead},
		"2 shutdown now":              {all(shutdown(0), phase(SandboxPending)), StateDead},
		"2 shutdown to come":          {all(shutdown(1), pooled, phase(SandboxRunning), ready("True")), StateAvailable},
		"3 pending":                   {all(phase(SandboxPending)), StateCreating},
		"3 pending in a pool":         {all(phase(SandboxPending), pooled, ready("True")), StateCreating},
		"4 succeeded":                 {all(phase(SandboxSucceeded), pooled, ready("True")), StateDead},
		"4 failed":                    {all(phase(SandboxFailed)), StateDead},
		"4 terminating":               {all(phase(SandboxTerminating)), StateDead},
		"5 available":                 {all(pooled, phase(SandboxRunning), ready("True")), StateAvailable},
		"5 ready says it all":         {all(pooled, phase(SandboxPaused), paused, ready("True")), StateAvailable},
		"5 with a token":              {all(pooled, phase(SandboxRunning), ready("True"), token("True")), StateAvailable},
		"6 without a token":           {all(pooled, phase(SandboxRunning), ready("True"), token("False")), StateCreating},
		"8 without a token":           {all(phase(SandboxRunning), ready("True"), token("False")), StateRunning},
		"6 not ready":                 {all(pooled, phase(SandboxRunning), ready("False")), StateCreating},
		"6 unknown":                   {all(pooled, phase(SandboxRunning), ready("Unknown")), StateCreating},
		"6 new":                       {all(pooled), StateCreating},
		"7 pause asked for":           {all(phase(SandboxRunning), paused, ready("True")), StatePaused},
		"8 running":                   {all(phase(SandboxRunning), ready("True")), StateRunning},
		"9 not ready":                 {all(phase(SandboxRunning), ready("False")), StateDead},
		"9 no condition":              {all(phase(SandboxRunning)), StateDead},
		"10 paused":                   {all(phase(SandboxPaused)), StatePaused},
		"10 resuming":                 {all(phase(SandboxResuming), ready("True")), StatePaused},
		"10 upgrading":                {all(phase(SandboxUpgrading)), StatePaused},
		"10 recycling":                {all(phase(SandboxRecycling)), StatePaused},
		"10 made by a user, new":      {all(), StatePaused},
		"owner is not the controller": {all(owner(func(o *metav1.OwnerReference) { o.Controller = &no })), StatePaused},
		"owner says nothing of it":    {all(owner(func(o *metav1.OwnerReference) { o.Controller = nil })), StatePaused},
		"owner is a claim":            {all(owner(func(o *metav1.OwnerReference) { o.Kind = "SandboxClaim" })), StatePaused},
		"owner is of another group":   {all(owner(func(o *metav1.OwnerReference) { o.APIVersion = "apps/v1" })), StatePaused},
		"labels make no pool": {
			all(phase(SandboxRunning), ready("True"), func(s *Sandbox) {
				s.Labels = map[string]string{LabelSandboxPool: "pool", LabelSandboxClaimed: ClaimedFalse}
			}),
			StateRunning,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sandbox := &Sandbox{}
			for _, change := range tc.sandbox {
				change(sandbox)
			}
			if state := StateOf(sandbox, now); state != tc.state {
				t.Errorf("got %s, want %s", state, tc.state)
			}
		})
	}
}
