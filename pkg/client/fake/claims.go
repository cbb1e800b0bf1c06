// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"cmp"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// createClaim is what the server does when a claim is created.
func (c *Clientset) createClaim(action testing.Action) (bool, runtime.Object, error) {
	create, ok := action.(testing.CreateActionImpl)
	if !ok {
		return false, nil, nil
	}
	switch obj := create.Object.(type) {
	case *v1alpha1.SandboxClaimRelease:
		released, err := c.store.release(create, obj)
		return true, released, err
	case *v1alpha1.SandboxClaimRuntimeAccess:
		access, err := c.store.runtimeAccess(create, obj)
		return true, access, err
	case *v1alpha1.SandboxClaim:
		claim, err := c.store.create(create, obj.DeepCopy())
		if err != nil {
			return true, nil, err
		}
		return true, claim, nil
	}
	return false, nil, nil
}

func (s store) create(action testing.CreateActionImpl, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	claim.Namespace = action.Namespace
	claim.UID, claim.CreationTimestamp, claim.Generation = "", metav1.Time{}, 0 // the server's to give
	identify(claim)
	v1alpha1.SetObjectDefaults_SandboxClaim(claim)
	if errs := validate(claim); len(errs) > 0 {
		return nil, invalid(claim, errs...)
	}
	if _, err := s.claim(claim.Namespace, claim.Name); err == nil {
		return nil, apierrors.NewAlreadyExists(claimsResource.GroupResource(), claim.Name)
	}
	now := metav1.Now()
	claim.Status = v1alpha1.SandboxClaimStatus{
		ObservedGeneration: claim.Generation, Phase: v1alpha1.SandboxClaimPhaseClaiming, ClaimStartTime: &now,
	}
	taken, err := s.serve(claim, func(p shortage) error { return p.refusal(claim) })
	if err != nil || len(action.CreateOptions.DryRun) > 0 {
		return claim, err
	}
	if err := s.write(taken); err != nil {
		return nil, err
	}
	if err := s.tracker.Create(claimsResource, claim, claim.Namespace); err != nil {
		return nil, err
	}
	if err := s.count(claim.Namespace); err != nil {
		return nil, err
	}
	return s.claim(claim.Namespace, claim.Name)
}

func validate(claim *v1alpha1.SandboxClaim) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if claim.Name == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	if n := *claim.Spec.Replicas; n < 1 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), n, "must be at least 1"))
	}
	if (claim.Spec.TemplateName == "") == (claim.Spec.SandboxTemplateRef == nil) {
		errs = append(errs, field.Required(spec.Child("templateName"), "exactly one of templateName and sandboxTemplateRef is required"))
	}
	return errs
}

func invalid(claim *v1alpha1.SandboxClaim, errs ...*field.Error) error {
	return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim").GroupKind(), claim.Name, errs)
}

// shortage is what a claim lacks.
type shortage struct {
	// noPool is true if no set serves the claim.
	noPool bool
	// have and want count what is available and what the claim still needs.
	have, want int
}

// refusal is the answer to a claim with onShortage Fail; nil to one that waits.
func (p shortage) refusal(claim *v1alpha1.SandboxClaim) error {
	if claim.Spec.OnShortage != v1alpha1.ShortageFail {
		return nil
	}
	spec := field.NewPath("spec")
	kind, name := "SandboxSet", claim.Spec.TemplateName
	if ref := claim.Spec.SandboxTemplateRef; ref != nil {
		kind, name = "SandboxTemplate", ref.Name
	}
	if p.noPool {
		path := spec.Child("templateName")
		if claim.Spec.SandboxTemplateRef != nil {
			path = spec.Child("sandboxTemplateRef", "name")
		}
		return invalid(claim, field.NotFound(path, name))
	}
	message := fmt.Sprintf("%s %s has %d of %d sandboxes available", kind, name, p.have, p.want)
	refusal := apierrors.NewTooManyRequests(message, 0)
	details := refusal.ErrStatus.Details
	details.Group, details.Kind, details.Name = v1alpha1.GroupName, "SandboxClaim", claim.Name
	details.Causes = append(details.Causes, metav1.StatusCause{
		Type: v1alpha1.CauseShortage, Field: spec.Child("replicas").String(), Message: message,
	})
	return refusal
}

// serve gives a claim what there is, in its status, and returns the sandboxes that are its
// own now. Nothing is written. refuse, if it is not nil, is asked about a shortage.
func (s store) serve(claim *v1alpha1.SandboxClaim, refuse func(shortage) error) ([]*v1alpha1.Sandbox, error) {
	sets, pools, err := s.pools(claim)
	if err != nil {
		return nil, err
	}
	stock, err := s.stock(claim.Namespace, pools)
	if err != nil {
		return nil, err
	}
	lacks := int(*claim.Spec.Replicas - claim.Status.ClaimedReplicas)
	found := len(stock)
	if *claim.Spec.CreateOnNoStock && len(sets) > 0 {
		for len(stock) < lacks {
			stock = append(stock, running(&sets[0]))
		}
	}
	enough := len(stock) >= lacks
	if !enough && refuse != nil {
		if err := refuse(shortage{noPool: len(sets) == 0, have: found, want: lacks}); err != nil {
			return nil, err
		}
	}
	if !enough && claim.Spec.Allocation == v1alpha1.AllocationAllOrNothing {
		stock = nil
	}
	stock = stock[:min(len(stock), lacks)]
	for _, sandbox := range stock {
		bind(sandbox, claim)
		claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{
			Name: sandbox.Name, UID: sandbox.UID, PodIPs: []string{sandbox.Status.PodInfo.PodIP},
		})
	}
	claim.Status.ClaimedReplicas += int32(len(stock))
	tell(claim, len(sets) == 0)
	return stock, nil
}

// pools returns the sets that a claim refers to, the preferred ones first, and those of
// them whose pools may serve it.
func (s store) pools(claim *v1alpha1.SandboxClaim) (sets, pools []v1alpha1.SandboxSet, err error) {
	all, err := s.sets(claim.Namespace)
	if err != nil {
		return nil, nil, err
	}
	for _, set := range all {
		ref := set.Spec.TemplateRef
		if set.Name == claim.Spec.TemplateName ||
			claim.Spec.SandboxTemplateRef != nil && ref != nil && ref.Name == claim.Spec.SandboxTemplateRef.Name {
			sets = append(sets, set)
		}
	}
	slices.SortFunc(sets, func(a, b v1alpha1.SandboxSet) int {
		switch {
		case a.Spec.Patch == nil && b.Spec.Patch != nil:
			return -1
		case a.Spec.Patch != nil && b.Spec.Patch == nil:
			return 1
		}
		return cmp.Or(
			cmp.Compare(b.Status.AvailableReplicas, a.Status.AvailableReplicas),
			cmp.Compare(a.Name, b.Name),
		)
	})
	for _, set := range sets {
		if pool := claim.Spec.WarmPool; pool == v1alpha1.WarmPoolDefault || pool == set.Name {
			pools = append(pools, set)
		}
	}
	return sets, pools, nil
}

// stock returns what can be claimed from pools, in their order.
func (s store) stock(namespace string, pools []v1alpha1.SandboxSet) (stock []*v1alpha1.Sandbox, err error) {
	for i := range pools {
		members, err := s.sandboxes(namespace, func(sandbox *v1alpha1.Sandbox) bool {
			return metav1.IsControlledBy(sandbox, &pools[i]) && available(sandbox)
		})
		if err != nil {
			return nil, err
		}
		stock = append(stock, members...)
	}
	return stock, nil
}

// tell writes into the status of a claim how far it is.
func tell(claim *v1alpha1.SandboxClaim, noPool bool) {
	have, want := claim.Status.ClaimedReplicas, *claim.Spec.Replicas
	switch {
	case have == want:
		complete(claim, v1alpha1.ReasonAllReplicasClaimed, v1alpha1.ClaimedMessage(have, want), metav1.ConditionTrue)
	case noPool:
		claim.Status.Message = missing(claim)
	default:
		claim.Status.Message = v1alpha1.ClaimingMessage(have, want)
	}
}

func missing(claim *v1alpha1.SandboxClaim) string {
	if ref := claim.Spec.SandboxTemplateRef; ref != nil {
		return fmt.Sprintf("SandboxTemplate %s not found in namespace %s", ref.Name, claim.Namespace)
	}
	return fmt.Sprintf("SandboxSet %s not found in namespace %s", claim.Spec.TemplateName, claim.Namespace)
}

// complete ends a claim.
func complete(claim *v1alpha1.SandboxClaim, reason, message string, ready metav1.ConditionStatus) {
	now := metav1.Now()
	status := &claim.Status
	status.Phase, status.Message, status.CompletionTime = v1alpha1.SandboxClaimPhaseCompleted, message, &now
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ClaimConditionCompleted, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	})
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ClaimConditionReady, Status: ready, Reason: reason, Message: message,
	})
}

// timeOut ends a claim that waits with what it has, and writes it.
func (s store) timeOut(claim *v1alpha1.SandboxClaim) error {
	sets, _, err := s.pools(claim)
	if err != nil {
		return err
	}
	have, want, after := claim.Status.ClaimedReplicas, *claim.Spec.Replicas, claim.Spec.ClaimTimeout.Duration
	reason, message := v1alpha1.ReasonTimeoutReached, v1alpha1.ClaimTimeoutMessage(after, have, want)
	if len(sets) == 0 {
		reason, message = v1alpha1.ReasonSandboxSetNotFound, missing(claim)
		if claim.Spec.SandboxTemplateRef != nil {
			reason = v1alpha1.ReasonSandboxTemplateNotFound
		}
	}
	meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ClaimConditionTimedOut, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClaimTimeoutReached,
		Message: v1alpha1.ClaimTimeoutConditionMessage(after, have, want),
	})
	complete(claim, reason, message, metav1.ConditionFalse)
	return s.tracker.Update(claimsResource, claim, claim.Namespace)
}
