// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

type keyValues = map[string]string

// brings is a claim that brings labels, and labels for pods alone.
func brings(labels, additional keyValues) *v1alpha1.SandboxClaim {
	return claimOf(func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels, c.Spec.AdditionalPodMetadata = labels, &v1alpha1.PodMetadata{Labels: additional}
	})
}

// boundWith is a sandbox of a claim, bound with a pod template of these labels.
func boundWith(t *testing.T, claim *v1alpha1.SandboxClaim, template string, policy *v1alpha1.PodMetadataPolicy) *v1alpha1.Sandbox {
	t.Helper()
	sb, _, err := bindWith(marksOf(t, claim), &Candidate{
		Sandbox: stocked("box"), Template: &runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":` + template + `},"spec":{"x":1}}`)},
		PodMetadata: policy, Lock: "lock",
	}, birth)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// podLabels are those of the pod template but for the owner.
func podLabels(t *testing.T, sb *v1alpha1.Sandbox) keyValues {
	t.Helper()
	template, err := v1alpha1.PodTemplate(sb.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	if template.Labels[v1alpha1.LabelOwner] != "claim-uid" {
		t.Errorf("the pod's labels are %v", template.Labels)
	}
	delete(template.Labels, v1alpha1.LabelOwner)
	return template.Labels
}

func TestResync(t *testing.T) {
	none := &v1alpha1.PodMetadataPolicy{}
	tests := map[string]struct {
		template       string
		before, after  *v1alpha1.SandboxClaim
		bound, now     *v1alpha1.PodMetadataPolicy
		byHand         func(*v1alpha1.Sandbox)
		labels, onPod  keyValues // of the sandbox without its own, and of its pod
		same           bool
		refused        string
		heldBack       []string
		sameGeneration bool
	}{
		"nothing": {
			template: `{"app":"x"}`, before: brings(keyValues{"run": "1"}, keyValues{"tier": "gold"}), after: brings(keyValues{"run": "1"}, keyValues{"tier": "gold"}),
			same: true,
		},
		"plain": {template: `{"app":"x"}`, before: claimOf(nil), after: claimOf(nil), same: true},
		"other values": {
			template: `{"app":"x"}`, before: brings(keyValues{"run": "1"}, keyValues{"tier": "gold"}), after: brings(keyValues{"run": "2"}, keyValues{"tier": "tin"}),
			labels: keyValues{"run": "2"}, onPod: keyValues{"app": "x", "run": "2", "tier": "tin"},
		},
		"from one to the other": {
			template: `{"app":"x"}`, before: brings(keyValues{"a": "1"}, keyValues{"b": "2"}), after: brings(keyValues{"b": "2"}, keyValues{"a": "1"}),
			labels: keyValues{"b": "2"}, onPod: keyValues{"app": "x", "a": "1", "b": "2"}, sameGeneration: true,
		},
		"all gone": {
			template: `{"app":"x"}`, before: brings(keyValues{"run": "1"}, keyValues{"tier": "gold"}), after: claimOf(nil),
			onPod: keyValues{"app": "x"},
		},
		"what the template says as well stays": {
			template: `{"app":"x","tier":"gold"}`, before: brings(keyValues{"app": "x"}, keyValues{"tier": "gold"}), after: claimOf(nil),
			onPod: keyValues{"app": "x", "tier": "gold"}, sameGeneration: true,
		},
		"labels do not override the template": {
			template: `{"app":"x"}`, before: claimOf(nil), after: brings(keyValues{"app": "y"}, nil),
			labels: keyValues{"app": "y"}, onPod: keyValues{"app": "x"}, heldBack: []string{"spec.labels[app]"}, sameGeneration: true,
		},
		"a label becomes another than the template's": {
			template: `{"app":"x"}`, before: brings(keyValues{"app": "x"}, nil), after: brings(keyValues{"app": "y"}, nil),
			labels: keyValues{"app": "y"}, onPod: keyValues{"app": "x"}, heldBack: []string{"spec.labels[app]"}, sameGeneration: true,
		},
		"what is additional may not": {
			template: `{"app":"x"}`, before: brings(keyValues{"run": "1"}, nil), after: brings(keyValues{"run": "2"}, keyValues{"app": "y"}),
			refused: "invalid additionalPodMetadata: spec.additionalPodMetadata.labels[app]: Forbidden: the pod template sets it to another value",
		},
		"it may say the same": {
			template: `{"app":"x"}`, before: claimOf(nil), after: brings(nil, keyValues{"app": "x", "b": "2"}), onPod: keyValues{"app": "x", "b": "2"},
		},
		"a policy that has become narrower keeps what is there": {
			template: `{}`, before: brings(keyValues{"run": "1", "old": "1"}, keyValues{"tier": "gold", "kind": "a"}), now: none,
			after: brings(keyValues{"run": "1", "team": "rl"}, keyValues{"tier": "tin", "kind": "a"}), labels: keyValues{"run": "1", "team": "rl"},
			onPod: keyValues{"run": "1", "kind": "a"}, heldBack: []string{"spec.additionalPodMetadata.labels[tier]", "spec.labels[team]"},
		},
		"a policy that has become wider": {
			template: `{}`, before: brings(nil, keyValues{"tier": "gold"}), after: brings(nil, keyValues{"tier": "gold"}), bound: none,
			onPod: keyValues{"tier": "gold"},
		},
		"platform keys never pass": {
			template: `{}`, before: claimOf(nil), after: brings(nil, keyValues{"sidecar.istio.io/inject": "true"}),
			same: true, heldBack: []string{"spec.additionalPodMetadata.labels[sidecar.istio.io/inject]"},
		},
		"the claim's keys are the claim's, others are not": {
			template: `{}`, before: brings(keyValues{"run": "1", "b": "2"}, nil), after: brings(keyValues{"run": "1"}, nil),
			byHand: func(sb *v1alpha1.Sandbox) {
				sb.Labels["run"], sb.Labels["mine"] = "stolen", "yes"
				sb.Spec.Template.Raw = []byte(strings.NewReplacer(`"run":"1"`, `"run":"stolen","mine":"yes"`).Replace(string(sb.Spec.Template.Raw)))
			},
			labels: keyValues{"run": "1", "mine": "yes"}, onPod: keyValues{"run": "1", "mine": "yes"},
		},
		"lists that cannot be read name nothing": {
			template: `{}`, before: brings(keyValues{"run": "1"}, nil), after: claimOf(nil),
			byHand: func(sb *v1alpha1.Sandbox) {
				sb.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim] = "[1"
				sb.Annotations[v1alpha1.AnnotationPodMetadataInClaim] = "[1"
			},
			labels: keyValues{"run": "1"}, onPod: keyValues{"run": "1"}, sameGeneration: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sb := boundWith(t, tc.before, tc.template, tc.bound)
			if tc.byHand != nil {
				tc.byHand(sb)
			}
			stored := sb.DeepCopy()
			marks := marksOf(t, tc.after)
			next, err := marks.Resync(sb, tc.now)
			if diff := cmp.Diff(stored, sb); diff != "" {
				t.Errorf("it was changed:\n%s", diff)
			}
			if tc.refused != "" {
				if refused := MetadataRefusal(err); refused == nil || refused.Message != tc.refused || next != nil {
					t.Errorf("got %v, want it refused", err)
				}
				return
			}
			if err != nil || next == nil != tc.same {
				t.Fatalf("changes: %t, %v", next != nil, err)
			}
			if diff := cmp.Diff(append([]string{}, tc.heldBack...), marks.HeldBack()); diff != "" {
				t.Errorf("held back (-want +got):\n%s", diff)
			}
			if next == nil {
				return
			}
			labels := merged(stocked("box").Labels, tc.labels)
			labels[v1alpha1.LabelClaimName], labels[v1alpha1.LabelSandboxClaimed] = "mine", "true"
			if diff := cmp.Diff(labels, next.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.onPod, podLabels(t, next)); diff != "" {
				t.Errorf("on the pod (-want +got):\n%s", diff)
			}
			if revision, err := podtemplate.SandboxRevision(next); err != nil || next.Status.UpdateRevision != revision {
				t.Errorf("the revision is %s, want %s, %v", next.Status.UpdateRevision, revision, err)
			}
			if got := next.Generation == sb.Generation; got != tc.sameGeneration || next.Status.ObservedGeneration != next.Generation {
				t.Errorf("generation %d, observed %d, was %d", next.Generation, next.Status.ObservedGeneration, sb.Generation)
			}
			if next.Annotations[v1alpha1.AnnotationLock] != "lock" || next.Annotations[v1alpha1.AnnotationOwner] != "claim-uid" {
				t.Errorf("its marks are %v", next.Annotations)
			}
			// It comes to rest, and can be taken back.
			if again, err := marksOf(t, tc.after).Resync(next, tc.now); again != nil || err != nil {
				t.Errorf("a second time: %v, %v", again, err)
			}
		})
	}
}

// TestBindRefusesMetadata: a candidate and a fresh sandbox alike.
func TestBindRefusesMetadata(t *testing.T) {
	claim := brings(nil, keyValues{"app": "payments", "b": "1"})
	_, _, err := bindWith(marksOf(t, claim), &Candidate{Sandbox: stocked("box"), Template: pooled.Spec.Template, Lock: "lock"}, birth)
	if MetadataRefusal(err) == nil {
		t.Errorf("binding: %v", err)
	}
	_, err = marksOf(t, claim).NewSandbox(&pooled, nil, "fresh", "uid", "lock", birth)
	refused := MetadataRefusal(err)
	if refused == nil || refused.Reason != v1alpha1.ReasonInvalidMetadata || len(refused.Errors) != 1 || strings.Contains(refused.Message, "payments") {
		t.Errorf("making: %v", err)
	}
	if refused := marksOf(t, claim).Refuses(pooled.Spec.Template); refused == nil || !strings.Contains(refused.Message, "labels[app]") {
		t.Errorf("asked: %v", refused)
	}
	if refused := marksOf(t, brings(keyValues{"app": "payments"}, keyValues{"app": "x"})).Refuses(pooled.Spec.Template); refused != nil {
		t.Errorf("what says the same: %v", refused)
	}
}

// TestChangeOfMetadataIsObservedLast: the status of a claim that continues stays behind until
// its sandboxes have what it says, and then reports the result.
func TestChangeOfMetadataIsObservedLast(t *testing.T) {
	s := stateOf(of(2), lists(0, "a"))
	s.Claim.Generation = 2
	next := func(change MetadataChange) *v1alpha1.SandboxClaim {
		t.Helper()
		s.Metadata = change
		p, err := Assess(s).Next(Offer{}, marksOf(t, s.Claim))
		if err != nil {
			t.Fatal(err)
		}
		return p.Claim
	}
	if got := next(MetadataChange{Behind: true, Report: &MetadataReport{Changed: 1}}); got.Status.ObservedGeneration != 1 || len(got.Status.Conditions) != 0 {
		t.Errorf("behind: %+v", got.Status)
	}
	if got := next(MetadataChange{}); got.Status.ObservedGeneration != 2 || len(got.Status.Conditions) != 0 {
		t.Errorf("a change that is not about metadata: %+v", got.Status)
	}
	got := next(MetadataChange{Report: &MetadataReport{Changed: 1}})
	if got.Status.ObservedGeneration != 2 || !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced) {
		t.Errorf("after it: %+v", got.Status)
	}
}

func TestMetadataReport(t *testing.T) {
	kept := &MetadataReport{Changed: 3}
	for _, why := range []string{"a", "b", "a", "c", "d", strings.Repeat("long", 1000)} {
		kept.Keep(why)
	}
	long := &MetadataReport{}
	long.Keep(strings.Repeat("long", 1000))
	tests := map[string]struct {
		was    *metav1.Condition
		report *MetadataReport
		want   string
	}{
		"nothing":              {report: &MetadataReport{}},
		"nothing any more":     {was: &metav1.Condition{Status: metav1.ConditionFalse}, report: &MetadataReport{}, want: "True/Succeeded: The sandboxes have the metadata that the claim says"},
		"some":                 {report: &MetadataReport{Changed: 1}, want: "True/Succeeded: The sandboxes have the metadata that the claim says"},
		"some were kept":       {report: kept, want: "False/InvalidMetadata: invalid additionalPodMetadata: 6 sandboxes keep the metadata that they had: a; b; c"},
		"a long reason is cut": {report: long, want: "False/InvalidMetadata: invalid additionalPodMetadata: 1 sandboxes keep the metadata that they had: " + strings.Repeat("long", 64) + "..."},
		"held back": {
			report: &MetadataReport{Changed: 1, HeldBack: []string{"a", "b", "c", "d", "e", "f", "g"}},
			want:   "True/Succeeded: The sandboxes have the metadata that the claim says; not on all of their pods: a, b, c, d, e and 2 more",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := claimOf(func(c *v1alpha1.SandboxClaim) { c.Generation = 7 })
			if tc.was != nil {
				tc.was.Type = v1alpha1.ClaimConditionMetadataSynced
				claim.Status.Conditions = []metav1.Condition{*tc.was}
			}
			next := MetadataSynced(claim, tc.report, nil, birth)
			got := ""
			if c := meta.FindStatusCondition(next.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced); c != nil {
				got = string(c.Status) + "/" + c.Reason + ": " + c.Message
			}
			if got != tc.want || next.Status.ObservedGeneration != 7 {
				t.Errorf("observed %d, says %q, want %q", next.Status.ObservedGeneration, got, tc.want)
			}
			if claim.Status.ObservedGeneration != 0 || len(claim.Status.Conditions) > 0 && claim.Status.Conditions[0].Reason != "" {
				t.Error("the claim before was changed")
			}
		})
	}
}
