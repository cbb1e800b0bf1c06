// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// TestRightsOfRecycling: to give a recycled sandbox back requires the right to adopt for that
// set and no other, and that right ends no binding beside it.
func TestRightsOfRecycling(t *testing.T) {
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	living := func(context.Context, string, *metav1.OwnerReference) (metav1.Object, error) {
		return &metav1.ObjectMeta{}, nil
	}
	recycled := func(t *testing.T, name string, phase v1alpha1.SandboxPhase) {
		t.Helper()
		ctx, sb := registrytest.Context(t, resource), registrytest.NewSandbox(name)
		for _, change := range []func(*v1alpha1.Sandbox){
			ownedBy("SandboxClaim", true), annotated(v1alpha1.AnnotationLock, "x"), annotated(v1alpha1.AnnotationOwner, "1"),
			annotated(v1alpha1.AnnotationClaimTimestamp, "x"), annotated(v1alpha1.AnnotationUpdatedMetadataInClaim, "{}"),
			annotated(v1alpha1.AnnotationPoolUID, "1"), labelled(v1alpha1.LabelSandboxPool, "pool"),
			labelled(v1alpha1.LabelClaimName, "claim"), labelled(v1alpha1.LabelSandboxClaimed, "true"), labelled(v1alpha1.LabelTemplateHash, "x"),
		} {
			change(sb)
		}
		if _, err := store.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		status := sandbox.NewREST(fixture.Scheme, store, &rightList{}, living, nil, nil).Status
		_, _, err := status.Update(ctx, name, changing(func(sb *v1alpha1.Sandbox) {
			sb.Status.Phase = phase
			sb.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.SandboxConditionRecycling, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRecyclingCompleted, LastTransitionTime: metav1.Now(),
			}}
		}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	giveBack := func(sb *v1alpha1.Sandbox) {
		sb.OwnerReferences, sb.Annotations = nil, nil
		ownedBy("SandboxSet", true)(sb)
		delete(sb.Labels, v1alpha1.LabelClaimName)
		sb.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse
	}
	write := func(t *testing.T, name string, may *rightList, changes ...func(*v1alpha1.Sandbox)) error {
		t.Helper()
		judge := func(context.Context, *v1alpha1.Sandbox, bool) error { return errors.New("judged as a new sandbox") }
		_, _, err := sandbox.NewREST(fixture.Scheme, store, may, living, judge, nil).Sandbox.Update(registrytest.Context(t, resource), name, changing(changes...),
			rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	recycled(t, "recycled", v1alpha1.SandboxRecycling)
	recycled(t, "running", v1alpha1.SandboxRunning)

	without := &rightList{}
	if err := write(t, "recycled", without, giveBack); !apierrors.IsForbidden(err) {
		t.Errorf("without a right: %v", err)
	}
	if diff := cmp.Diff([]string{adopt}, without.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if err := write(t, "recycled", &rightList{allowed: []string{adopt}}, giveBack); err != nil {
		t.Errorf("with the right: %v", err)
	}
	restored := template(`{"spec":{"containers":[{"name":"main","image":"restored:1"}]}}`)
	if err := write(t, "recycled", &rightList{allowed: []string{adopt}}, giveBack, restored); err != nil {
		t.Errorf("with the template of the pool: %v", err)
	}
	for name, changes := range map[string][]func(*v1alpha1.Sandbox){
		"unlock":                  {func(sb *v1alpha1.Sandbox) { delete(sb.Annotations, v1alpha1.AnnotationLock) }},
		"another date beside":     {giveBack, annotated(v1alpha1.AnnotationClaimTimestamp, "y")},
		"a mark of claims beside": {giveBack, annotated(v1alpha1.AnnotationClaimedBy, "bob")},
		"to a claim as well":      {giveBack, ownedBy("SandboxClaim", false), func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[1].UID = "2" }},
		"to nothing":              {giveBack, func(sb *v1alpha1.Sandbox) { sb.OwnerReferences = nil }},
	} {
		may := &rightList{allowed: []string{adopt}}
		if err := write(t, "recycled", may, changes...); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One that is not recycled stays its claim's, whatever the right.
	all := &rightList{allowed: []string{adopt, bind}}
	if err := write(t, "running", all, giveBack); !apierrors.IsInvalid(err) {
		t.Errorf("taken from its claim: %v", err)
	}
}
