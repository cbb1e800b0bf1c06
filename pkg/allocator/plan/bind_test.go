// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
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

func marksOf(t *testing.T, claim *v1alpha1.SandboxClaim) *Marks {
	t.Helper()
	m, err := NewMarks(claim)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bindWith returns what a candidate becomes with the marks of a claim and the features that change
// sandboxes in place. waits reports whether it has to wait for these.
func bindWith(m *Marks, c *Candidate, now time.Time) (sb *v1alpha1.Sandbox, waits bool, err error) {
	if sb, err = m.claimCandidate(c, now); err != nil {
		return nil, false, err
	}
	a := &Assessment{State: State{Claim: m.claim, Now: now}, claim: m.claim, runtimes: agentRuntimes{}}
	a.features = featuresOf(&a.State, []Candidate{*c})
	a.features = slices.DeleteFunc(a.features, func(f feature) bool { return f == runtimeSetup{} })
	waits, err = bindFeatures(a, m, sb, c)
	return sb, waits, err
}

// bound is what a sandbox of a pool becomes that is bound and counts at once.
func bound(t *testing.T, claim *v1alpha1.SandboxClaim, from *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	t.Helper()
	before := from.DeepCopy()
	sb, waits, err := bindWith(marksOf(t, claim), &Candidate{Sandbox: from, Template: from.Spec.Template, Lock: "lock"}, birth)
	if err != nil || waits {
		t.Fatal(waits, err)
	}
	setCounted(sb, claim, true)
	if diff := cmp.Diff(before, from); diff != "" {
		t.Errorf("the sandbox in the pool changed (-before +after):\n%s", diff)
	}
	return sb
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
			from := pooled.DeepCopy()
			from.Generation, from.Status = tc.generation, *tc.observed.DeepCopy()
			from.Status.UpdateRevision = "before"
			sb := bound(t, claimOf(nil), from)
			tc.want.UpdateRevision = "before"
			if tc.want.ObservedGeneration == sb.Generation {
				var err error
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
				wantAnnotations := map[string]string{
					v1alpha1.AnnotationLock: "lock", v1alpha1.AnnotationOwner: "claim-uid", v1alpha1.AnnotationClaimTimestamp: "2026-03-04T05:06:07Z",
					v1alpha1.AnnotationUpdatedMetadataInClaim: `{"annotations":null,"labels":null}`,
					v1alpha1.AnnotationPoolUID:                "set-uid",
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
		"a pause time beside it": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) {
				pause := metav1.NewTime(birth.Add(time.Hour + 300*time.Millisecond))
				c.Spec.ShutdownTime, c.Spec.PauseTime = &shutdown, &pause
			}),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if want := birth.Add(time.Hour); sb.Spec.PauseTime == nil || !sb.Spec.PauseTime.Time.Equal(want) || sb.Spec.ShutdownTime == nil {
					t.Errorf("pauseTime is %s, want %s: whole seconds", sb.Spec.PauseTime, want)
				}
			},
		},
		"one of the E2B API has its id": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) {
				c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: v1alpha1.E2BUser(c.Namespace)}
			}),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if id, ok := v1alpha1.IsE2B(sb); !ok || id != sb.Namespace+"--mine" {
					t.Errorf("it is %q, %v: %v", id, ok, sb.Labels)
				}
				if strings.Contains(string(sb.Spec.Template.Raw), v1alpha1.LabelSandboxID) {
					t.Error("the pod has it, too")
				}
				let := release(sb, false, birth)
				if _, ok := v1alpha1.IsE2B(let); ok || let.Labels[v1alpha1.LabelSandboxID] != "" {
					t.Error("it is still one when it is let go")
				}
			},
		},
		"one of the E2B API whose id could be another's has none": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) {
				c.Name = "team--mine"
				c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: v1alpha1.E2BUser(c.Namespace)}
			}),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if got, ok := sb.Labels[v1alpha1.LabelSandboxID]; ok {
					t.Errorf("it has %q", got)
				}
			},
		},
		"one of the E2B API whose id is no label has none": {
			claim: claimOf(func(c *v1alpha1.SandboxClaim) {
				c.Namespace = strings.Repeat("n", 58)
				c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: v1alpha1.E2BUser(c.Namespace)}
			}),
			check: func(t *testing.T, sb *v1alpha1.Sandbox) {
				if got, ok := sb.Labels[v1alpha1.LabelSandboxID]; ok {
					t.Errorf("it has %s", got)
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
			tt.check(t, bound(t, tt.claim, pooled.DeepCopy()))
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
	m := marksOf(t, claim)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// Also from memory, and where it is written so that it has to be decoded.
			for _, before := range []string{tt.before, tt.before, " " + tt.before} {
				got, err := m.template([]byte(before), nil, "")
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
	if _, err := m.template([]byte(`{"metadata":{"labels":[]}}`), nil, ""); err == nil {
		t.Error("labels that are no map were taken")
	}
}

// TestBindingDetachesFromTheTemplate: also a sandbox that has none of its own, and one
// whose template cannot be read is not bound.
func TestBindingDetachesFromTheTemplate(t *testing.T) {
	inherited := pooled.Spec.Template
	tests := map[string]struct {
		template *runtime.RawExtension
		want     bool
		fails    bool
	}{
		"the template that it referred to": {template: inherited, want: true},
		"none":                             {},
		"no template at all":               {template: &runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":[]}}`)}, fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			from := pooled.DeepCopy()
			from.Spec.Template, from.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "py"}
			sb, _, err := bindWith(marksOf(t, claimOf(nil)), &Candidate{Sandbox: from, Template: tc.template}, birth)
			if tc.fails {
				if err == nil || !strings.Contains(err.Error(), "template of sandbox ns/pool-abcde: metadata.labels") {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if sb.Spec.TemplateRef != nil || (sb.Spec.Template != nil) != tc.want || from.Spec.TemplateRef == nil {
				t.Errorf("bound with %+v", sb.Spec.EmbeddedSandboxTemplate)
			}
		})
	}
}

func TestNewSandbox(t *testing.T) {
	claim := claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.Labels = map[string]string{"run": "7"} })
	model := pooled.DeepCopy()
	model.Name, model.UID, model.ResourceVersion, model.OwnerReferences = "", "", "", nil
	model.Status = v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxRunning, ObservedGeneration: 1}
	before := model.DeepCopy()
	sb, err := marksOf(t, claim).NewSandbox(model, nil, "fresh", "fresh-uid", "lock", birth)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, model); diff != "" {
		t.Errorf("the model changed (-before +after):\n%s", diff)
	}
	want := metav1.ObjectMeta{
		Namespace: "ns", Name: "fresh", UID: "fresh-uid", Generation: 1, CreationTimestamp: metav1.NewTime(birth),
		Labels: map[string]string{
			v1alpha1.LabelSandboxPool: "pool", "team": "infra", "run": "7",
			v1alpha1.LabelSandboxClaimed: "true", v1alpha1.LabelClaimName: "mine",
		},
		Annotations: map[string]string{
			v1alpha1.AnnotationLock: "lock", v1alpha1.AnnotationOwner: "claim-uid", v1alpha1.AnnotationClaimTimestamp: "2026-03-04T05:06:07Z",
			v1alpha1.AnnotationUpdatedMetadataInClaim: `{"annotations":null,"labels":["run"]}`, v1alpha1.AnnotationStarting: "true",
			v1alpha1.AnnotationPodMetadataInClaim: `{"annotations":null,"labels":["run"]}`,
		},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(claim, v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"))},
	}
	if diff := cmp.Diff(want, sb.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	revision, err := podtemplate.SandboxRevision(sb) // of the template as the claim has it
	if err != nil {
		t.Fatal(err)
	}
	born := v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxPending, ObservedGeneration: 1, UpdateRevision: revision}
	if diff := cmp.Diff(born, sb.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(sb.Spec.Template.Raw), `"agents.kruise.io/owner":"claim-uid"`) {
		t.Errorf("the pod would not know whose it is: %s", sb.Spec.Template.Raw)
	}
	model.Spec.Template = &runtime.RawExtension{Raw: []byte(`[]`)}
	if _, err := marksOf(t, claim).NewSandbox(model, nil, "fresh", "fresh-uid", "lock", birth); err == nil {
		t.Error("a template that is none was taken")
	}
}

// TestPodMetadata: what a policy or the pod template holds back is on the sandbox, not in
// the pod template, and is reported.
func TestPodMetadata(t *testing.T) {
	claim := claimOf(func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"app": "payments", "run": "7"}
		c.Spec.Annotations = map[string]string{"note": "a", "sidecar.istio.io/inject": "true"} // from before there was the rule
	})
	const own = `"agents.kruise.io/owner":"claim-uid"`
	const template, plain = `{"metadata":{"labels":{"app":"x"}}}`, `{"metadata":{"labels":{"run":"7"}}}`
	tests := []struct {
		name, before string
		policy       *v1alpha1.PodMetadataPolicy
		after        string
		heldBack     []string // of all so far
	}{
		{
			"no policy, and the template's own value stays", template, nil,
			`{"metadata":{"annotations":{"note":"a"},"labels":{` + own + `,"app":"x","run":"7"}}}`,
			[]string{"spec.annotations[sidecar.istio.io/inject]", "spec.labels[app]"},
		},
		{
			"none", plain, &v1alpha1.PodMetadataPolicy{},
			`{"metadata":{"labels":{` + own + `,"run":"7"}}}`,
			[]string{"spec.annotations[note]", "spec.annotations[sidecar.istio.io/inject]", "spec.labels[app]", "spec.labels[run]"},
		},
		{
			"of another pool with the same template", plain, &v1alpha1.PodMetadataPolicy{Labels: []string{"a*"}, Annotations: []string{"*"}},
			`{"metadata":{"annotations":{"note":"a"},"labels":{` + own + `,"app":"payments","run":"7"}}}`,
			[]string{"spec.annotations[note]", "spec.annotations[sidecar.istio.io/inject]", "spec.labels[app]", "spec.labels[run]"},
		},
	}
	m := marksOf(t, claim)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from := pooled.DeepCopy()
			sb, _, err := bindWith(m, &Candidate{
				Sandbox: from, Template: &runtime.RawExtension{Raw: []byte(tt.before)}, PodMetadata: tt.policy, Lock: "lock",
			}, birth)
			if err != nil {
				t.Fatal(err)
			}
			if sb.Labels["app"] != "payments" || sb.Labels["run"] != "7" || sb.Annotations["note"] != "a" || sb.Annotations["sidecar.istio.io/inject"] != "true" {
				t.Errorf("the sandbox has %v, %v", sb.Labels, sb.Annotations)
			}
			if diff := cmp.Diff(tt.after, string(sb.Spec.Template.Raw)); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.heldBack, m.HeldBack()); diff != "" {
				t.Errorf("held back (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStand: with Retain a sandbox that counts is free of the claim, and one that does
// not count goes with it in any case.
func TestStand(t *testing.T) {
	for _, policy := range []v1alpha1.ReclaimPolicy{v1alpha1.ReclaimRetain, v1alpha1.ReclaimDelete} {
		for _, counts := range []bool{false, true} {
			claim := claimOf(func(c *v1alpha1.SandboxClaim) { c.Spec.ReclaimPolicy = policy })
			sb := bound(t, claim, pooled.DeepCopy())
			for range 2 { // it is never owned twice
				setCounted(sb, claim, counts)
				if owned := len(sb.OwnerReferences) == 1 && metav1.IsControlledBy(sb, claim); owned != (!counts || policy == v1alpha1.ReclaimDelete) ||
					!owned && len(sb.OwnerReferences) != 0 || IsStarting(sb) == counts {
					t.Errorf("%s, counts %t: owned by %v, starting %t", policy, counts, sb.OwnerReferences, IsStarting(sb))
				}
			}
		}
	}
}

func TestBoundSandboxesSayWhose(t *testing.T) {
	long := strings.Repeat("é", 1000)
	for user, name := range map[string]string{"system:serviceaccount:ns:runner": "system:serviceaccount:ns:runner", long: long[:256], "": ""} {
		sb := bound(t, claimOf(func(c *v1alpha1.SandboxClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: user}
		}), pooled.DeepCopy())
		label := ""
		if user != "" {
			label = v1alpha1.ClaimedByLabel(user)
		}
		if got := sb.Labels[v1alpha1.LabelClaimedBy]; got != label || len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("label is %q, want %q", got, label)
		}
		if got := sb.Annotations[v1alpha1.AnnotationClaimedBy]; got != name {
			t.Errorf("annotation is %q, want %q", got, name)
		}
	}
	// What docs/api.md says to select by: printf %s alice | sha256sum | cut -c1-32
	if got := v1alpha1.ClaimedByLabel("alice"); got != "2bd806c97f0e00af1a1fc3328fa763a9" {
		t.Errorf("the label of alice is %s", got)
	}
}

func TestLetGo(t *testing.T) {
	claim := claimOf(func(c *v1alpha1.SandboxClaim) {
		c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "alice"}
	})
	other := metav1.OwnerReference{Kind: "Other", Name: "other", UID: "other-uid"}
	held := bound(t, claim, pooled.DeepCopy())
	setCounted(held, claim, false)
	held.OwnerReferences = append(held.OwnerReferences, other)
	held.Spec.PauseTime, held.Spec.ShutdownTime = &metav1.Time{Time: birth.Add(time.Minute)}, &metav1.Time{Time: birth.Add(time.Hour)}
	before := held.DeepCopy()
	at := birth.Add(300 * time.Millisecond)
	tests := map[string]struct {
		got     *v1alpha1.Sandbox
		reserve bool
	}{
		"for good":        {Release(held, at), false},
		"by a plan":       {release(held, false, at), false},
		"kept to look at": {release(held, true, at), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.got
			if diff := cmp.Diff([]metav1.OwnerReference{other}, got.OwnerReferences); diff != "" || IsStarting(got) {
				t.Errorf("starting: %t, owner references (-want +got):\n%s", IsStarting(got), diff)
			}
			owner, name := got.Annotations[v1alpha1.AnnotationOwner], got.Labels[v1alpha1.LabelClaimName]
			reserved := got.Labels[v1alpha1.LabelReservedFailedSandbox] == "true"
			if by := got.Annotations[v1alpha1.AnnotationClaimedBy] + got.Labels[v1alpha1.LabelClaimedBy]; (by != "") != tc.reserve {
				t.Errorf("it is claimed by %q", by)
			}
			if tc.reserve {
				if !reserved || owner != "claim-uid" || name != "mine" || got.Spec.ShutdownTime != nil || got.Spec.PauseTime != nil || got.Generation <= held.Generation {
					t.Errorf("reserved as %+v", got.ObjectMeta)
				}
				return
			}
			if reserved || owner != "" || name != "" || got.Generation != held.Generation+1 || !got.Spec.ShutdownTime.Time.Equal(birth) {
				t.Errorf("let go as %+v, due at %v", got.ObjectMeta, got.Spec.ShutdownTime)
			}
		})
	}
	kept := held.DeepCopy()
	kept.Annotations[v1alpha1.AnnotationAPI] = v1alpha1.AgentsGroup
	if v1alpha1.KeptAtShutdown(Release(kept, at)) {
		t.Error("one of agent-sandbox is kept for ever")
	}
	if diff := cmp.Diff(before, held); diff != "" {
		t.Errorf("what the claim held changed (-before +after):\n%s", diff)
	}
}
