// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// denies is admission that refuses what is labelled so, and labels the rest.
type denies struct{}

const deny = "test/deny"

var (
	_ admission.MutationInterface   = denies{}
	_ admission.ValidationInterface = denies{}
)

func (denies) Handles(admission.Operation) bool { return true }

func (denies) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if claim, ok := a.GetObject().(*v1alpha1.SandboxClaim); ok && a.GetOperation() == admission.Create && a.GetSubresource() == "" {
		if claim.Spec.Labels == nil {
			claim.Spec.Labels = map[string]string{}
		}
		claim.Spec.Labels["admitted"] = "yes"
	}
	return nil
}

func (denies) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj := a.GetObject()
	if a.GetOperation() == admission.Delete {
		obj = a.GetOldObject()
	}
	if claim, ok := obj.(*v1alpha1.SandboxClaim); ok && claim.Labels[deny] == string(a.GetOperation()) {
		if a.GetOperation() == admission.Create && claim.Status.Phase != "" {
			return errors.New("a claim is bound before it is admitted")
		}
		return admission.NewForbidden(a, errors.New("denied by the test"))
	}
	return nil
}

func withAdmission(c *apiserver.Config) { c.GenericConfig.AdmissionControl = denies{} }

// A denied claim stores nothing and takes nothing from the pool, in whatever way
// it was sent.
func TestAdmissionDenies(t *testing.T) {
	const stock = 3
	s, set := stocked(t, stock+1, testutil.WithConfig(withAdmission))
	create(t, s, testutil.Claim(set, "keeps", 1, func(c *v1alpha1.SandboxClaim) { c.Labels = map[string]string{deny: "DELETE"} }))
	denied := func(name string) *v1alpha1.SandboxClaim {
		return testutil.Claim(set, name, stock, func(c *v1alpha1.SandboxClaim) { c.Labels = map[string]string{deny: "CREATE"} })
	}
	dry := []string{metav1.DryRunAll}
	tests := map[string]func() error{
		"create": func() error {
			_, err := claims(s).Create(t.Context(), denied("a"), metav1.CreateOptions{})
			return err
		},
		"create, dry run": func() error {
			_, err := claims(s).Create(t.Context(), denied("a"), metav1.CreateOptions{DryRun: dry})
			return err
		},
		"create by a generated name": func() error {
			claim := denied("")
			claim.GenerateName = "a-"
			_, err := claims(s).Create(t.Context(), claim, metav1.CreateOptions{})
			return err
		},
		"apply": func() error {
			_, err := apply(t, s, denied("a"), metav1.PatchOptions{})
			return err
		},
		"apply, dry run": func() error {
			_, err := apply(t, s, denied("a"), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"delete": func() error { return claims(s).Delete(t.Context(), "keeps", metav1.DeleteOptions{}) },
		"update": func() error {
			_, err := claims(s).Patch(t.Context(), "keeps", types.MergePatchType, []byte(`{"metadata":{"labels":{"`+deny+`":"UPDATE"}}}`), metav1.PatchOptions{})
			return err
		},
	}
	before := readAll(t, s)
	for name, do := range tests {
		if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied by the test") {
			t.Errorf("%s: got %v, want it to be denied", name, err)
		}
	}
	if diff := cmp.Diff(before, readAll(t, s)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	all := create(t, s, testutil.Claim(set, "all", stock, fails))
	for _, sb := range owned(t, s, all) {
		if sb.Labels["admitted"] != "yes" {
			t.Errorf("sandbox %s has labels %v: not those of the admitted claim", sb.Name, sb.Labels)
		}
	}
	checkInvariants(t, s)
}

// apply sends a claim by server-side apply.
func apply(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim, options metav1.PatchOptions) (*v1alpha1.SandboxClaim, error) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "SandboxClaim",
		"metadata": map[string]any{"name": claim.Name, "labels": claim.Labels, "annotations": claim.Annotations},
		"spec":     claim.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	options.FieldManager = "test"
	return claims(s).Patch(t.Context(), claim.Name, types.ApplyPatchType, body, options)
}

// Who claims is the server's to say: what clients send is dropped, and no manager
// comes to own it, else two who apply the same claim would be in conflict.
func TestClaimedByCannotBeForged(t *testing.T) {
	s, set := stocked(t, 3)
	forged := func(name string) *v1alpha1.SandboxClaim {
		return testutil.Claim(set, name, 1, func(c *v1alpha1.SandboxClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "eve", "mine": "yes"}
		})
	}
	created := create(t, s, forged("created"))
	applied, err := apply(t, s, forged("applied"), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := apply(t, s, forged("applied"), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("applying again: %v", err)
	}
	if again.Generation != applied.Generation {
		t.Errorf("applying again changed the claim: it was at %d, is at %d", applied.Generation, again.Generation)
	}
	updated := created.DeepCopy()
	updated.Annotations[v1alpha1.AnnotationClaimedBy] = "eve"
	if updated, err = claims(s).Update(t.Context(), updated, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	patched, err := claims(s).Patch(t.Context(), "created", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationClaimedBy+`":null}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := created.Annotations[v1alpha1.AnnotationClaimedBy]
	if user == "" || user == "eve" {
		t.Fatalf("created by %q", user)
	}
	for way, claim := range map[string]*v1alpha1.SandboxClaim{
		"created": created, "applied": applied, "applied again": again, "updated": updated, "patched": patched,
	} {
		want := map[string]string{v1alpha1.AnnotationClaimedBy: user, "mine": "yes"}
		if diff := cmp.Diff(want, claim.Annotations); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", way, diff)
		}
	}
	for _, entry := range applied.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(entry.FieldsV1.GetRawString(), v1alpha1.AnnotationClaimedBy) {
			t.Errorf("%s owns who claims: %s", entry.Manager, entry.FieldsV1)
		}
	}
}

// The spec of a claim says what was asked for; how many cannot change later.
func TestReplicasAreImmutable(t *testing.T) {
	s, set := stocked(t, 2)
	create(t, s, testutil.Claim(set, "mine", 1, nil))
	more := testutil.Claim(set, "mine", 2, nil)
	for way, change := range map[string]func() error{
		"apply": func() error {
			_, err := apply(t, s, more, metav1.PatchOptions{Force: new(true)})
			return err
		},
		"patch": func() error {
			_, err := claims(s).Patch(t.Context(), "mine", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
			return err
		},
		"update": func() error {
			claim, err := claims(s).Get(t.Context(), "mine", metav1.GetOptions{})
			if err != nil {
				return err
			}
			claim.Spec.Replicas = more.Spec.Replicas
			_, err = claims(s).Update(t.Context(), claim, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := change(); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.replicas") {
			t.Errorf("%s: got %v, want spec.replicas to be refused", way, err)
		}
	}
	checkInvariants(t, s)
}

// deniesMade is admission that refuses sandboxes while it is full, and counts
// them, and annotates the rest.
type deniesMade struct {
	full    atomic.Bool
	refused atomic.Int32
}

func (*deniesMade) Handles(admission.Operation) bool { return true }

func (*deniesMade) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if sb, ok := a.GetObject().(*v1alpha1.Sandbox); ok && a.GetOperation() == admission.Create {
		sb.Annotations["admitted"] = a.GetUserInfo().GetName()
		sb.Annotations["admitted-as"] = fmt.Sprint(a.GetUserInfo().GetGroups(), a.GetUserInfo().GetExtra())
	}
	return nil
}

func (d *deniesMade) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if _, ok := a.GetObject().(*v1alpha1.Sandbox); ok && a.GetOperation() == admission.Create && d.full.Load() {
		d.refused.Add(1)
		return admission.NewForbidden(a, errors.New("no room for sandboxes"))
	}
	return nil
}

// Sandboxes that are made for a claim, in its own transaction, are admitted like
// all others: a quota or a policy on sandboxes holds for them too.
func TestAdmissionOfMadeSandboxes(t *testing.T) {
	rooms := &deniesMade{}
	s, set := stocked(t, 2, testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.AdmissionControl = rooms
		c.ExtraConfig.SyncWindow = 0
	}))
	rooms.full.Store(true)
	before := readAll(t, s)
	_, err := claims(s).Create(t.Context(), testutil.Claim(set, "cold", 3, nil), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no room for sandboxes") {
		t.Errorf("got %v, want it to be refused", err)
	}
	if diff := cmp.Diff(before, readAll(t, s)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
	warm := create(t, s, testutil.Claim(set, "warm", 2, nil))
	if warm.Status.ClaimedReplicas != 2 {
		t.Errorf("what is warm needs no admission of its own: %+v", warm.Status)
	}

	rooms.full.Store(false)
	made := create(t, s, testutil.Claim(set, "made", 2, nil))
	its := owned(t, s, made)
	if len(its) != 2 {
		t.Fatalf("%d sandboxes were made, want 2", len(its))
	}
	for _, sb := range its {
		if sb.Annotations["admitted"] == "" || sb.Annotations["admitted"] != made.Annotations[v1alpha1.AnnotationClaimedBy] {
			t.Errorf("sandbox %s was admitted as of %q, want %q", sb.Name, sb.Annotations["admitted"], made.Annotations[v1alpha1.AnnotationClaimedBy])
		}
	}
	checkInvariants(t, s)
}

// A claim that continues does so while its sandboxes must not be made, and takes
// what comes into its pool.
func TestAdmissionOfSandboxesMadeLater(t *testing.T) {
	rooms := &deniesMade{}
	s, set := stocked(t, 0, testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.AdmissionControl = rooms
		c.ExtraConfig.SyncWindow = 0
	}))
	claim := create(t, s, testutil.Claim(set, "cold", 1, nil))
	first := owned(t, s, claim)
	if len(first) != 1 {
		t.Fatalf("%d sandboxes were made, want 1", len(first))
	}
	rooms.full.Store(true)
	if err := sandboxes(s).Delete(t.Context(), first[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Had the claim to make another, it would never be ready here, where there are
	// no controllers.
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if rooms.refused.Load() == 0 {
			return errors.New("nothing was asked for in place of the sandbox that is gone")
		}
		return nil
	})
	s.Stock(t, set, 0, 1)
	done := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if done.Status.ClaimedReplicas != 1 || done.Status.Sandboxes[0].Name == first[0].Name {
		t.Errorf("got %+v", done.Status)
	}
	checkInvariants(t, s)
}

// What is made in the background is admitted as made by the user who claimed, with all
// that policies may look at. That is recorded in the claim for as long as it continues, and
// no client changes it.
func TestMadeLaterAsWhoClaimed(t *testing.T) {
	s, set := stocked(t, 0, testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.AdmissionControl = &deniesMade{}
		c.ExtraConfig.SyncWindow = 0
	}))
	claim := create(t, s, testutil.Claim(set, "cold", 1, nil))
	first := owned(t, s, claim)[0]
	admitted := first.Annotations["admitted-as"]
	if !strings.Contains(admitted, user.SystemPrivilegedGroup) || !strings.Contains(admitted, "credential-id") {
		t.Fatalf("the first was admitted as %s", admitted)
	}
	recorded := claim.Annotations[v1alpha1.AnnotationClaimedByIdentity]
	if recorded == "" {
		t.Error("who claimed is not recorded")
	}
	patched, err := claims(s).Patch(t.Context(), "cold", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationClaimedByIdentity+`":"{}"}}}`), metav1.PatchOptions{})
	if err != nil || patched.Annotations[v1alpha1.AnnotationClaimedByIdentity] != recorded {
		t.Errorf("patched to %v, %v", patched.Annotations, err)
	}
	if err := sandboxes(s).Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var second *v1alpha1.Sandbox
	expect.Eventually(t.Context(), t, func(context.Context) error {
		for _, sb := range owned(t, s, claim) {
			if sb.Name != first.Name {
				second = &sb
				return nil
			}
		}
		return errors.New("nothing was made in place of the sandbox that is gone")
	})
	if got := second.Annotations["admitted-as"]; got != admitted {
		t.Errorf("the second was admitted as %s, the first as %s", got, admitted)
	}
	second.Status = testutil.ReadyStatus(1, second.CreationTimestamp.Time)
	if _, err := sandboxes(s).UpdateStatus(t.Context(), second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	done := s.AwaitClaim(t, namespace, "cold", testutil.Completed)
	if _, still := done.Annotations[v1alpha1.AnnotationClaimedByIdentity]; still || done.Annotations[v1alpha1.AnnotationClaimedBy] == "" {
		t.Errorf("a claim that is Completed has the annotations %v", done.Annotations)
	}
	checkInvariants(t, s)
}
