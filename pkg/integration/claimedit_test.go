// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	rules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// additional gives a claim labels for its pods alone.
func additional(labels map[string]string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) { c.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Labels: labels} }
}

// edit changes the claim mine.
func edit(t *testing.T, s *testutil.Server, change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	t.Helper()
	var edited *v1alpha1.SandboxClaim
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		claim, err := claims(s).Get(t.Context(), "mine", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(claim)
		edited, err = claims(s).Update(t.Context(), claim, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatalf("changing the claim: %v", err)
	}
	return edited
}

// synced is a check for AwaitClaim.
func synced(claim *v1alpha1.SandboxClaim) string {
	if claim.Status.ObservedGeneration != claim.Generation {
		return "its change was not observed"
	}
	return ""
}

// metadataOf is what of interest a sandbox has by itself, and in its pod template.
func metadataOf(t *testing.T, sb *v1alpha1.Sandbox) string {
	t.Helper()
	var template metav1.PartialObjectMetadata
	if err := json.Unmarshal(sb.Spec.Template.Raw, &template); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, of := range []struct {
		name   string
		values map[string]string
	}{{"label", sb.Labels}, {"annotation", sb.Annotations}, {"pod label", template.Labels}, {"pod annotation", template.Annotations}} {
		for _, key := range []string{"app", "team", "run", "note", "tier", "hand"} {
			if value, ok := of.values[key]; ok && value != "test" {
				all = append(all, of.name+" "+key+"="+value)
			}
		}
	}
	return strings.Join(all, ", ")
}

// expectMetadata checks all n sandboxes of a claim.
func expectMetadata(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim, n int, want string) {
	t.Helper()
	all := held(t, s, claim)
	if len(all) != n {
		t.Fatalf("claim %s holds %d sandboxes, want %d", claim.Name, len(all), n)
	}
	for i := range all {
		if diff := cmp.Diff(want, metadataOf(t, &all[i])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", all[i].Name, diff)
			return
		}
	}
}

// TestAdditionalPodMetadata: it is in the pod templates and not on the sandboxes, of pools
// and fresh ones alike, and is held back by the policy like labels.
func TestAdditionalPodMetadata(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond), withAllPodMetadata)
	client, heard := hearing(t, s)
	metadata := &v1alpha1.PodMetadata{Labels: map[string]string{"tier": "gold", "app": "test"}, Annotations: map[string]string{"note": "x"}}
	for _, name := range []string{"warm", "fresh"} {
		claim := create(t, s, testutil.Claim(set, name, 1, func(c *v1alpha1.SandboxClaim) { c.Spec.AdditionalPodMetadata = metadata }))
		expectMetadata(t, s, claim, 1, "pod label tier=gold, pod annotation note=x")
	}
	narrow := set.DeepCopy()
	narrow.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "narrow"}
	narrow.Spec.PodMetadataPolicy = &v1alpha1.PodMetadataPolicy{Labels: []string{"team"}}
	narrow, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Create(t.Context(), narrow, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := client.AgentsV1alpha1().SandboxClaims(namespace).Create(t.Context(),
		testutil.Claim(narrow, "held-back", 1, additional(map[string]string{"tier": "gold", "team": "rl"})), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expectMetadata(t, s, claim, 1, "pod label team=rl")
	if said := heard.take(); !strings.HasPrefix(said, "spec.additionalPodMetadata.labels[tier]: ") {
		t.Errorf("warned of %q", said)
	}
}

// TestAdditionalPodMetadataThatDoesNotFit: a key that the pod template sets otherwise is
// refused by its field, and nothing is taken; if that is found out later, the claim ends.
func TestAdditionalPodMetadataThatDoesNotFit(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(time.Millisecond), withAllPodMetadata)
	empty := s.Set(t, namespace, "empty", 1)
	other := additional(map[string]string{"app": "payments"})
	for name, claim := range map[string]*v1alpha1.SandboxClaim{
		"warm":    testutil.Claim(set, "c", 1, other),
		"fresh":   testutil.Claim(empty, "c", 1, other),
		"none":    testutil.Claim(empty, "c", 1, both(other, func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = v1alpha1.WarmPoolNone })),
		"waiting": testutil.Claim(empty, "c", 1, both(other, waits)),
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			_, err := s.CreateOnce(t.Context(), namespace, claim, dryRun...)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.additionalPodMetadata.labels[app]: Forbidden: the pod template sets it to another value") {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}

	create(t, s, ofTemplate("warm-later", "later", 1, waits, other, timeout(expect.Patience)))
	create(t, s, ofTemplate("fresh-later", "later", 1, other, timeout(expect.Patience)))
	later := s.SetOf(t, s.Template(t, namespace, "later"), "later-pool", "", 1)
	s.Stock(t, later, 0, 1)
	for _, name := range []string{"warm-later", "fresh-later"} {
		claim := s.AwaitClaim(t, namespace, name, testutil.Completed)
		completed := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionCompleted)
		if completed == nil || completed.Reason != v1alpha1.ReasonInvalidMetadata || !strings.HasPrefix(claim.Status.Message, "invalid additionalPodMetadata: ") {
			t.Errorf("%s ends with %+v", name, claim.Status)
		}
		if claim.Status.ClaimedReplicas != 0 {
			t.Errorf("%s has %d sandboxes", name, claim.Status.ClaimedReplicas)
		}
	}
	checkInvariants(t, s)
	create(t, s, testutil.Claim(set, "takes-it", 1, fails))
}

// TestEditOfACompletedClaim: its sandboxes get what the claim says, lose what it does not
// say any more, and keep what is not the claim's.
func TestEditOfACompletedClaim(t *testing.T) {
	const n = 300 // several transactions
	s, set := stocked(t, n, withSyncWindow(expect.Patience), withAllPodMetadata)
	claim := create(t, s, testutil.Claim(set, "mine", n, both(additional(map[string]string{"tier": "gold"}), func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"team": "rl", "run": "1"}
		c.Spec.Annotations = map[string]string{"note": "a"}
	})))
	expectMetadata(t, s, claim, n, "label team=rl, label run=1, annotation note=a, "+
		"pod label team=rl, pod label run=1, pod label tier=gold, pod annotation note=a")
	byHand(t, s, claim.Status.Sandboxes[7].Name)

	before := claim
	edited := edit(t, s, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"team": "ml"}
		c.Spec.Annotations = nil
		c.Spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Annotations: map[string]string{"note": "b"}}
	})
	if edited.Status.ObservedGeneration == edited.Generation || edited.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		t.Errorf("right after the change the status is %+v", edited.Status)
	}
	claim = s.AwaitClaim(t, namespace, "mine", synced)
	if !isTrue(claim, v1alpha1.ClaimConditionMetadataSynced) || claim.Status.CompletionTime.Compare(before.Status.CompletionTime.Time) != 0 {
		t.Errorf("ends with %+v", claim.Status)
	}
	all := held(t, s, claim)
	if len(all) != n {
		t.Fatalf("holds %d sandboxes", len(all))
	}
	for i := range all {
		sb, want := &all[i], "label team=ml, pod label team=ml, pod annotation note=b"
		if sb.Name == claim.Status.Sandboxes[7].Name {
			want = "label team=ml, label hand=made, pod label team=ml, pod label hand=made, pod annotation note=b"
		}
		if diff := cmp.Diff(want, metadataOf(t, sb)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sb.Name, diff)
		}
		if got := sb.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim]; got != `{"annotations":null,"labels":["team"]}` {
			t.Errorf("%s says the claim's are %s", sb.Name, got)
		}
		if i != 7 && sb.Status.ObservedGeneration != sb.Generation { // no controller observes what was done by hand
			t.Errorf("%s is at generation %d and observed %d", sb.Name, sb.Generation, sb.Status.ObservedGeneration)
		}
	}
	checkInvariants(t, s)

	// Nothing is done, and nothing waited for, where nothing has to be.
	unchanged := edit(t, s, func(c *v1alpha1.SandboxClaim) { c.Spec.TTLAfterCompleted = &metav1.Duration{Duration: time.Hour * 2} })
	if unchanged.Status.ObservedGeneration != unchanged.Generation {
		t.Errorf("after a change of a time the status is %+v", unchanged.Status)
	}
}

// byHand gives a sandbox a label of a user, on it and on its pod, and changes one of the
// claim's, which is the claim's all the same.
func byHand(t *testing.T, s *testutil.Server, name string) {
	t.Helper()
	sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sb.Labels["hand"], sb.Labels["team"] = "made", "stolen"
	sb.Spec.Template.Raw = []byte(strings.Replace(string(sb.Spec.Template.Raw), `"team":"rl"`, `"team":"stolen","hand":"made"`, 1))
	if _, err := sandboxes(s).Update(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestEditOfAClaimThatWaits: what it has is changed at once, and what comes later has it
// from the start.
func TestEditOfAClaimThatWaits(t *testing.T) {
	s, set := stocked(t, 2, withSyncWindow(time.Millisecond), withAllPodMetadata)
	create(t, s, testutil.Claim(set, "mine", 3, both(waits, timeout(expect.Patience), additional(map[string]string{"tier": "gold"}))))
	edit(t, s, additional(map[string]string{"tier": "silver"}))
	claim := s.AwaitClaim(t, namespace, "mine", synced)
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || claim.Status.ClaimedReplicas != 2 || !isTrue(claim, v1alpha1.ClaimConditionMetadataSynced) {
		t.Errorf("status is %+v", claim.Status)
	}
	expectMetadata(t, s, claim, 2, "pod label tier=silver")
	s.Stock(t, set, 10, 1)
	claim = s.AwaitClaim(t, namespace, "mine", testutil.Completed)
	expectMetadata(t, s, claim, 3, "pod label tier=silver")
	checkInvariants(t, s)
}

// TestEditThatDoesNotFit: sandboxes whose pod template sets a key otherwise stay as they
// are, and the claim says so; the next change heals it.
func TestEditThatDoesNotFit(t *testing.T) {
	s, set := stocked(t, 2, withSyncWindow(expect.Patience), withAllPodMetadata)
	create(t, s, testutil.Claim(set, "mine", 2, additional(map[string]string{"tier": "gold"})))
	edit(t, s, both(additional(map[string]string{"app": "payments"}), func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"team": "rl"}
	}))
	claim := s.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, s, claim, 2, "pod label tier=gold")
	said := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced)
	if said == nil || said.Status != metav1.ConditionFalse || said.Reason != v1alpha1.ReasonInvalidMetadata ||
		!strings.HasPrefix(said.Message, "invalid additionalPodMetadata: 2 sandboxes keep ") || !strings.Contains(said.Message, "spec.additionalPodMetadata.labels[app]") {
		t.Errorf("says %+v", said)
	}
	if !isTrue(claim, v1alpha1.ClaimConditionReady) {
		t.Errorf("it is not Ready any more: %+v", claim.Status.Conditions)
	}
	edit(t, s, additional(nil))
	claim = s.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, s, claim, 2, "label team=rl, pod label team=rl")
	if !isTrue(claim, v1alpha1.ClaimConditionMetadataSynced) {
		t.Errorf("says %+v", claim.Status.Conditions)
	}
}

// TestEditMeetsThePolicy: what the policy of the set does not let through now is not put on
// pods by an edit, and of a set that is gone nothing new is. What is there stays, or goes.
func TestEditMeetsThePolicy(t *testing.T) {
	s, set := stocked(t, 1, withSyncWindow(expect.Patience), withAllPodMetadata)
	create(t, s, testutil.Claim(set, "mine", 1, both(additional(map[string]string{"tier": "gold"}), func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"run": "1"}
	})))
	set.Spec.PodMetadataPolicy = &v1alpha1.PodMetadataPolicy{Labels: []string{"team"}}
	if _, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	edit(t, s, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"run": "1", "team": "rl"}
		c.Spec.AdditionalPodMetadata.Labels = map[string]string{"tier": "silver", "note": "x"}
	})
	claim := s.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, s, claim, 1, "label team=rl, label run=1, pod label team=rl, pod label run=1")
	said := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionMetadataSynced)
	if said == nil || !strings.HasSuffix(said.Message, "not on all of their pods: spec.additionalPodMetadata.labels[note], spec.additionalPodMetadata.labels[tier]") {
		t.Errorf("says %+v", said)
	}
	if err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Delete(t.Context(), set.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	edit(t, s, func(c *v1alpha1.SandboxClaim) { c.Spec.Labels = map[string]string{"team": "ml"} })
	claim = s.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, s, claim, 1, "label team=ml")
}

// TestEditGoesOnAfterARestart: also on another server, also where a part was done.
func TestEditGoesOnAfterARestart(t *testing.T) {
	const n = 200
	one, set := stocked(t, n, withSyncWindow(expect.Patience))
	set.Spec.PodMetadataPolicy = &v1alpha1.PodMetadataPolicy{Labels: []string{"tier"}} // on each server
	if _, err := one.Client.AgentsV1alpha1().SandboxSets(namespace).Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, one, testutil.Claim(set, "mine", n, nil))
	edit(t, one, additional(map[string]string{"tier": "gold"}))
	one = restart(t, one) // at any moment
	claim := one.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, one, claim, n, "pod label tier=gold")

	two := testutil.Start(t, testutil.WithEtcd(one.EtcdServers))
	for i := range 3 {
		tier := fmt.Sprintf("t%d", i)
		edit(t, one, additional(map[string]string{"tier": tier}))
		claim := two.AwaitClaim(t, namespace, "mine", synced)
		expectMetadata(t, two, claim, n, "pod label tier="+tier)
	}
	edit(t, two, additional(nil))
	one.Stop()
	claim = two.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, two, claim, n, "")
	checkInvariants(t, two)
}

// TestEditStorm: an edit takes no position in the queue, and sandboxes can be
// released, and claim and sandboxes deleted, meanwhile.
func TestEditStorm(t *testing.T) {
	const n = 150
	s, set := stocked(t, n+1, withSyncWindow(expect.Patience), withAllPodMetadata)
	claim := create(t, s, testutil.Claim(set, "mine", n, nil))
	for i := range 40 {
		claim = edit(t, s, additional(map[string]string{"tier": fmt.Sprint(i)}))
		if rules.Unfinished(claim) {
			t.Fatalf("the claim is unfinished: %+v", claim.Status)
		}
	}
	create(t, s, testutil.Claim(set, "another", 1, fails))
	released, err := claims(s).Release(t.Context(), "mine", &v1alpha1.SandboxClaimRelease{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"},
		Spec:       v1alpha1.SandboxClaimReleaseSpec{SandboxNames: []string{claim.Status.Sandboxes[0].Name, claim.Status.Sandboxes[149].Name}},
	}, metav1.CreateOptions{})
	if err != nil || len(released.Status.Released) != 2 {
		t.Fatalf("released %+v, %v", released, err)
	}
	claim = s.AwaitClaim(t, namespace, "mine", synced)
	expectMetadata(t, s, claim, n-2, "pod label tier=39")
	edit(t, s, additional(map[string]string{"tier": "last"}))
	if err := claims(s).Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
