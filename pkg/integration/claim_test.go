// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func TestCreateBinds(t *testing.T) {
	s, set := stocked(t, 3)
	claim := create(t, s, testutil.Claim(set, "one", 2, nil))

	if testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 2 || len(claim.Status.Sandboxes) != 2 {
		t.Fatalf("the answer to create says %+v", claim.Status)
	}
	if !isTrue(claim, v1alpha1.ClaimConditionCompleted) || !isTrue(claim, v1alpha1.ClaimConditionReady) {
		t.Errorf("conditions are %v", claim.Status.Conditions)
	}
	stored, err := claims(s).Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, claim); diff != "" {
		t.Errorf("what is stored is not what create answered (-stored +answered):\n%s", diff)
	}
	for _, entry := range claim.Status.Sandboxes {
		sb, err := sandboxes(s).Get(t.Context(), entry.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if sb.ResourceVersion != claim.ResourceVersion {
			t.Errorf("sandbox %s is at %s, its claim at %s: not one transaction", sb.Name, sb.ResourceVersion, claim.ResourceVersion)
		}
		if sb.Annotations[v1alpha1.AnnotationOwner] != string(claim.UID) || len(sb.OwnerReferences) != 0 {
			t.Errorf("sandbox %s: owner %q, references %v", sb.Name, sb.Annotations[v1alpha1.AnnotationOwner], sb.OwnerReferences)
		}
		if diff := cmp.Diff([]string{sb.Status.PodInfo.PodIP}, entry.PodIPs); diff != "" {
			t.Errorf("addresses in the claim (-sandbox +claim):\n%s", diff)
		}
	}
	checkInvariants(t, s)
}

func TestWatchSeesClaimAndSandboxesAtOneVersion(t *testing.T) {
	s, set := stocked(t, 5)
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from := metav1.ListOptions{ResourceVersion: list.ResourceVersion}
	ofClaims, err := claims(s).Watch(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer ofClaims.Stop()
	ofSandboxes, err := sandboxes(s).Watch(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer ofSandboxes.Stop()

	claim := create(t, s, testutil.Claim(set, "one", 5, nil))
	event := <-ofClaims.ResultChan()
	if got := event.Object.(*v1alpha1.SandboxClaim); event.Type != watch.Added || got.ResourceVersion != claim.ResourceVersion ||
		got.Status.ClaimedReplicas != 5 {
		t.Errorf("first event of claims is %s at %s with %d claimed, want the claim as answered, at %s",
			event.Type, got.ResourceVersion, got.Status.ClaimedReplicas, claim.ResourceVersion)
	}
	for seen := 0; seen < 5; {
		event := <-ofSandboxes.ResultChan()
		sb := event.Object.(*v1alpha1.Sandbox)
		if sb.ResourceVersion == list.ResourceVersion {
			continue // the pool was stocked in one transaction too, which is sent again
		}
		seen++
		if event.Type != watch.Modified || sb.ResourceVersion != claim.ResourceVersion || sb.Labels[v1alpha1.LabelClaimName] != "one" {
			t.Errorf("event of sandbox %s is %s at %s, labels %v", sb.Name, event.Type, sb.ResourceVersion, sb.Labels)
		}
	}
}

func TestDryRunTakesNothing(t *testing.T) {
	s, set := stocked(t, 2)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for i := range 5 { // more often than there are sandboxes
		shown, err := claims(s).Create(t.Context(), testutil.Claim(set, "dry", 2, fails), dry)
		if err != nil {
			t.Fatalf("dry run %d: %v", i, err)
		}
		if testutil.Completed(shown) != "" || len(shown.Status.Sandboxes) != 2 || shown.Status.Sandboxes[0].PodIPs == nil {
			t.Fatalf("dry run %d shows %+v", i, shown.Status)
		}
	}
	applied, err := claims(s).Patch(t.Context(), "dry", types.ApplyPatchType, applyBody(t, "dry", set.Name, 1),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if testutil.Completed(applied) != "" || len(applied.Status.Sandboxes) != 1 {
		t.Errorf("dry run of apply shows %+v", applied.Status)
	}
	if _, err := claims(s).Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after dry runs the claim is there: %v", err)
	}
	if _, err := claims(s).Create(t.Context(), testutil.Claim(set, "dry", 3, fails), dry); !apierrors.IsTooManyRequests(err) {
		t.Errorf("dry run of more than there is: %v, want 429", err)
	}
	short, err := claims(s).Create(t.Context(), testutil.Claim(set, "dry", 3, waits), dry)
	if err != nil {
		t.Fatal(err)
	}
	if short.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || len(short.Status.Sandboxes) != 2 {
		t.Errorf("dry run of a claim that would wait shows %+v", short.Status)
	}
	// What would be made beside the two that are there, or in their place.
	for _, cold := range []struct {
		replicas, warm int32
		change         func(*v1alpha1.SandboxClaim)
	}{
		{5, 2, func(*v1alpha1.SandboxClaim) {}},
		{3, 0, func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = v1alpha1.WarmPoolNone }},
	} {
		shown, err := claims(s).Create(t.Context(), testutil.Claim(set, "dry", cold.replicas, cold.change), dry)
		if err != nil {
			t.Fatal(err)
		}
		want := v1alpha1.ClaimingMessage(cold.warm, cold.replicas) + "; 3 sandboxes would be made for it"
		if status := shown.Status; status.Message != want || len(status.Sandboxes) != int(cold.warm) || status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
			t.Errorf("dry run of a claim for %d shows %+v, want %q", cold.replicas, status, want)
		}
	}
	create(t, s, testutil.Claim(set, "real", 2, fails)) // all are still there
	checkInvariants(t, s)
}

func applyBody(t *testing.T, name, set string, replicas int) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "SandboxClaim",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"templateName": set, "replicas": replicas},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestApplyOntoNothingBinds(t *testing.T) {
	s, set := stocked(t, 3)
	apply := func() *v1alpha1.SandboxClaim {
		t.Helper()
		claim, err := claims(s).Patch(t.Context(), "applied", types.ApplyPatchType, applyBody(t, "applied", set.Name, 2),
			metav1.PatchOptions{FieldManager: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}
	first := apply()
	if testutil.Completed(first) != "" || len(first.Status.Sandboxes) != 2 {
		t.Fatalf("apply of an absent claim answers %+v", first.Status)
	}
	second := apply()
	if second.UID != first.UID || second.ResourceVersion != first.ResourceVersion {
		t.Errorf("applying again changed the claim: %s at %s, then %s at %s", first.UID, first.ResourceVersion, second.UID, second.ResourceVersion)
	}
	checkInvariants(t, s)
}

func TestNameIsTaken(t *testing.T) {
	s, set := stocked(t, 2)
	create(t, s, testutil.Claim(set, "mine", 1, nil))
	if _, err := claims(s).Create(t.Context(), testutil.Claim(set, "mine", 1, nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("the second create: %v, want AlreadyExists", err)
	}
	// What it had taken is back.
	create(t, s, testutil.Claim(set, "other", 1, fails))
	checkInvariants(t, s)
}

func TestGenerateName(t *testing.T) {
	s, set := stocked(t, 2)
	claim := testutil.Claim(set, "", 1, nil)
	claim.GenerateName = "run-"
	one, two := create(t, s, claim), create(t, s, claim)
	if one.Name == two.Name || len(one.Name) <= len("run-") {
		t.Errorf("names are %q and %q", one.Name, two.Name)
	}
	checkInvariants(t, s)
}

func TestBatchOverSeveralTransactions(t *testing.T) {
	s, set := stocked(t, 400)
	claim := create(t, s, testutil.Claim(set, "batch", 400, fails))
	if testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 400 {
		t.Fatalf("a claim of 400 answers %s, %q", claim.Status.Phase, claim.Status.Message)
	}
	checkInvariants(t, s)
}

func TestTenThousandInOneClaim(t *testing.T) {
	const n = 10_000
	s, set := stocked(t, n)
	create(t, s, testutil.Claim(set, "huge", n, both(waits, func(c *v1alpha1.SandboxClaim) {
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
	})))
	claim := s.AwaitClaim(t, namespace, "huge", testutil.Completed)
	if claim.Status.ClaimedReplicas != n || isTrue(claim, v1alpha1.ClaimConditionTimedOut) {
		t.Fatalf("a claim of %d ends with %q", n, claim.Status.Message)
	}
	checkInvariants(t, s)
}

func TestReclaimPolicyDeleteOwns(t *testing.T) {
	s, set := stocked(t, 1)
	claim := create(t, s, testutil.Claim(set, "one", 1, func(c *v1alpha1.SandboxClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete }))
	for _, sb := range owned(t, s, claim) {
		if !metav1.IsControlledBy(&sb, claim) {
			t.Errorf("sandbox %s has owners %v, want the claim", sb.Name, sb.OwnerReferences)
		}
	}
}

func TestOutlivesTheClaim(t *testing.T) {
	s, set := stocked(t, 1)
	claim := create(t, s, testutil.Claim(set, "one", 1, nil))
	if err := claims(s).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if its := owned(t, s, claim); len(its) != 1 || its[0].DeletionTimestamp != nil {
		t.Errorf("after the claim was deleted its sandboxes are %v", its)
	}
}

func TestNewestRevisionFirst(t *testing.T) {
	s, set := stocked(t, 2)
	set.Status.UpdateRevision = "new"
	set, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	newest := s.Stock(t, set, 10, 1)[0]
	sb, err := sandboxes(s).Get(t.Context(), newest, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sb.Labels[v1alpha1.LabelTemplateHash] = "new"
	if _, err := sandboxes(s).Update(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The index hears of both by watches. A dry run says when it has.
	for i := 0; ; i++ {
		shown, err := claims(s).Create(t.Context(), testutil.Claim(set, "dry", 3, fails), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && shown.Status.Sandboxes[0].Name == newest {
			break
		}
		if i > 10_000 {
			t.Fatalf("the newest is never first: %v, %v", shown, err)
		}
	}
	claim := create(t, s, testutil.Claim(set, "one", 1, nil))
	if got := claim.Status.Sandboxes[0].Name; got != newest {
		t.Errorf("took %s, want %s of the newest revision", got, newest)
	}
}

func TestClaimMetadataReachesSandboxAndTemplate(t *testing.T) {
	s, set := stocked(t, 1, withAllPodMetadata)
	claim := create(t, s, testutil.Claim(set, "one", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"run": "7"}
		c.Spec.Annotations = map[string]string{"note": "a"}
		c.Spec.ShutdownTime = new(metav1.Now())
	}))
	sb := owned(t, s, claim)[0]
	if sb.Labels["run"] != "7" || sb.Annotations["note"] != "a" || !sb.Spec.ShutdownTime.Equal(claim.Spec.ShutdownTime) {
		t.Errorf("sandbox has labels %v, annotations %v, shutdownTime %v", sb.Labels, sb.Annotations, sb.Spec.ShutdownTime)
	}
	want := fmt.Sprintf(`{"metadata":{"annotations":{"note":"a"},"labels":{"agents.kruise.io/owner":%q,"app":"test","run":"7"}},`+
		`"spec":{"containers":[{"image":"busybox","name":"main"}]}}`, claim.UID)
	if diff := cmp.Diff(want, string(sb.Spec.Template.Raw)); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if sb.Generation != 2 {
		t.Errorf("generation is %d, want 2", sb.Generation)
	}
}
