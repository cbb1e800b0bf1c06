// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

var (
	birth = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

	pooled = v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pool-abcde", ResourceVersion: "7", Generation: 1,
			Labels: map[string]string{
				v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse, "team": "infra",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "set-uid",
				Controller: new(true),
			}},
		},
		Spec: v1alpha1.SandboxSpec{
			PauseTime: &metav1.Time{Time: birth},
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: &runtime.RawExtension{
				Raw: []byte(`{"metadata":{"labels":{"app":"x"},"name":"kept"},"spec":{"containers":[{"name":"c","n":12345678901234567890}],"unknown":true}}`),
			}},
		},
	}
)

func claimOf(change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine", UID: "claim-uid", Generation: 1},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: "pool", Replicas: ptr.To[int32](1)},
	}
	if change != nil {
		change(claim)
	}
	return claim
}

func TestBindingIsNothingToObserve(t *testing.T) {
	condition := func(observed int64) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: observed}}
	}
	tests := map[string]struct {
		generation     int64
		observed, want v1alpha1.SandboxStatus
	}{
		"up to date": {
			generation: 3,
			observed:   v1alpha1.SandboxStatus{ObservedGeneration: 3, Conditions: condition(3)},
			want:       v1alpha1.SandboxStatus{ObservedGeneration: 4, Conditions: condition(4)},
		},
		"a condition without a generation": {
			generation: 3,
			observed:   v1alpha1.SandboxStatus{ObservedGeneration: 3, Conditions: condition(0)},
			want:       v1alpha1.SandboxStatus{ObservedGeneration: 4, Conditions: condition(0)},
		},
		"behind": {
			generation: 3,
			observed:   v1alpha1.SandboxStatus{ObservedGeneration: 2, Conditions: condition(2)},
			want:       v1alpha1.SandboxStatus{ObservedGeneration: 2, Conditions: condition(2)},
		},
		"not stored yet": {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := newBinding(claimOf(nil))
			if err != nil {
				t.Fatal(err)
			}
			sb := pooled.DeepCopy()
			sb.Generation, sb.Status = tc.generation, *tc.observed.DeepCopy()
			sb.Status.UpdateRevision = "before"
			if err := b.apply(sb, counted); err != nil {
				t.Fatal(err)
			}
			tc.want.UpdateRevision = "before"
			if tc.want.ObservedGeneration == sb.Generation {
				if tc.want.UpdateRevision, err = podtemplate.SandboxRevision(sb); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, sb.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if sb.Generation != tc.generation+1 {
				t.Errorf("generation is %d, was %d", sb.Generation, tc.generation)
			}
		})
	}
}

func TestBinding(t *testing.T) {
	shutdown := metav1.NewTime(birth.Add(90*time.Minute + 300*time.Millisecond).In(time.FixedZone("x", 3600)))
	tests := map[string]struct {
		claim *v1alpha1.SandboxClaim
		check func(t *testing.T, sb *v1alpha1.Sandbox)
	}{
		"a plain claim detaches, locks and labels": {
			claim: claimOf(nil),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if sb.OwnerReferences != nil {
					t.Errorf("owner references are %v, want none: the claim must not take the sandbox with it", sb.OwnerReferences)
				}
				wantLabels := map[string]string{
					v1alpha1.LabelSandboxPool: "pool", "team": "infra",
					v1alpha1.LabelSandboxClaimed: "true", v1alpha1.LabelClaimName: "mine",
				}
				if diff := cmp.Diff(wantLabels, sb.Labels); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
				lock := sb.Annotations[v1alpha1.AnnotationLock]
				if len(lock) != 36 {
					t.Errorf("lock is %q, want a UUID", lock)
				}
				wantAnnotations := map[string]string{
					v1alpha1.AnnotationLock: lock, v1alpha1.AnnotationOwner: "claim-uid",
					v1alpha1.AnnotationUpdatedMetadataInClaim: `{"annotations":null,"labels":null}`,
				}
				if diff := cmp.Diff(wantAnnotations, sb.Annotations); diff != "" {
					t.Errorf("annotations (-want +got):\n%s", diff)
				}
				if sb.Generation != 2 {
					t.Errorf("generation is %d, want 2: the template changed", sb.Generation)
				}
				if sb.Spec.PauseTime == nil || sb.Spec.ShutdownTime != nil {
					t.Error("times changed, though the claim sets none")
				}
			},
		},
		"with Delete the claim is the controller": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete }),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				want := []metav1.OwnerReference{{
					APIVersion: "agents.kruise.io/v1alpha1", Kind: "SandboxClaim", Name: "mine", UID: "claim-uid",
					Controller: new(true), BlockOwnerDeletion: new(true),
				}}
				if diff := cmp.Diff(want, sb.OwnerReferences); diff != "" {
					t.Errorf("owner references (-want +got):\n%s", diff)
				}
			},
		},
		"the shutdown time replaces the pause time": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = &shutdown }),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if want := birth.Add(90 * time.Minute); !sb.Spec.ShutdownTime.Time.Equal(want) {
					t.Errorf("shutdownTime is %s, want %s: whole seconds", sb.Spec.ShutdownTime, want)
				}
				if sb.Spec.PauseTime != nil {
					t.Error("pauseTime is still set")
				}
			},
		},
		"labels and annotations reach the sandbox and the pod template": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) {
				c.Spec.Labels = map[string]string{"team": "rl", "run": "7"}
				c.Spec.Annotations = map[string]string{"note": "a", "e2b.agents.kruise.io/x": "b", "agents.kruise.io/y": "c"}
			}),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if sb.Labels["team"] != "rl" || sb.Labels["run"] != "7" {
					t.Errorf("labels are %v", sb.Labels)
				}
				if sb.Annotations["note"] != "a" || sb.Annotations["e2b.agents.kruise.io/x"] != "b" || sb.Annotations["agents.kruise.io/y"] != "c" {
					t.Errorf("annotations are %v", sb.Annotations)
				}
				want := `{"annotations":["agents.kruise.io/y","e2b.agents.kruise.io/x","note"],"labels":["run","team"]}`
				if got := sb.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim]; got != want {
					t.Errorf("updated metadata is %s, want %s", got, want)
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := newBinding(tt.claim)
			if err != nil {
				t.Fatal(err)
			}
			sb := pooled.DeepCopy()
			if err := b.apply(sb, counted); err != nil {
				t.Fatal(err)
			}
			tt.check(t, sb)
		})
	}
}

func TestBindingTemplate(t *testing.T) {
	claim := claimOf(func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"run": "7"}
		c.Spec.Annotations = map[string]string{"note": "a", "e2b.agents.kruise.io/x": "b", "agents.kruise.io/y": "c"}
	})
	tests := map[string]struct{ before, after string }{
		"merges and keeps what it does not know": {
			before: string(pooled.Spec.Template.Raw),
			after: `{"metadata":{"annotations":{"note":"a"},"labels":{"agents.kruise.io/owner":"claim-uid","app":"x","run":"7"},"name":"kept"},` +
				`"spec":{"containers":[{"name":"c","n":12345678901234567890}],"unknown":true}}`,
		},
		"no metadata before": {
			before: `{"spec":{}}`,
			after:  `{"metadata":{"annotations":{"note":"a"},"labels":{"agents.kruise.io/owner":"claim-uid","run":"7"}},"spec":{}}`,
		},
		"null metadata before": {
			before: `{"metadata":null,"spec":{}}`,
			after:  `{"metadata":{"annotations":{"note":"a"},"labels":{"agents.kruise.io/owner":"claim-uid","run":"7"}},"spec":{}}`,
		},
	}
	b, err := newBinding(claim)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from memory
				got, err := b.template([]byte(tt.before))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.after, string(got.raw)); diff != "" {
					t.Errorf("template (-want +got):\n%s", diff)
				}
				if !json.Valid(got.raw) {
					t.Errorf("not JSON: %s", got.raw)
				}
				// What the sandbox's controller would compute.
				sb := &v1alpha1.Sandbox{}
				sb.Spec.Template = &runtime.RawExtension{Raw: got.raw}
				if want, err := podtemplate.SandboxRevision(sb); err != nil || got.revision != want {
					t.Errorf("revision %s, want %s, %v", got.revision, want, err)
				}
			}
		})
	}
	if _, err := b.template([]byte(`{"metadata":{"labels":[]}}`)); err == nil {
		t.Error("labels that are no map were taken")
	}
}

func TestBindingLocksDiffer(t *testing.T) {
	b, err := newBinding(claimOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	one, two := pooled.DeepCopy(), pooled.DeepCopy()
	if err := b.apply(one, counted); err != nil {
		t.Fatal(err)
	}
	if err := b.apply(two, counted); err != nil {
		t.Fatal(err)
	}
	if one.Annotations[v1alpha1.AnnotationLock] == two.Annotations[v1alpha1.AnnotationLock] {
		t.Error("two sandboxes have the same lock")
	}
}
