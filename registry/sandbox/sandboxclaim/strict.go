// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Clients of agent-sandbox look for what is wrong with a claim in its conditions, and not in
// the answer to its create. So such a claim is stored, whatever its template says of it. A
// client that prefers an error at once asks for that.

type strictKey struct{}

// WithStrict returns a context in which a claim of agent-sandbox that would be stored with a
// condition against it is refused.
func WithStrict(ctx context.Context) context.Context {
	return context.WithValue(ctx, strictKey{}, true)
}

// isStrict reports whether this server, or this request, asks for that.
func (r *REST) isStrict(ctx context.Context) bool {
	asked, _ := ctx.Value(strictKey{}).(bool)
	return r.Strict || asked
}

// isLenient reports whether a claim is stored all the same that was refused with err.
func (r *REST) isLenient(ctx context.Context, claim *v1alpha1.SandboxClaim, err error) bool {
	if !v1alpha1.OfAgentSandbox(claim) || r.isStrict(ctx) {
		return false
	}
	var refused *allocator.RefusedError
	var source *allocator.SourceError
	return errors.As(err, &refused) || errors.As(err, &source) || errors.Is(err, allocator.ErrSetNotFound)
}

// checkStrictly refuses a claim of agent-sandbox of which the condition Ready would say that its pool or
// its template is not there, or that they do not take it.
func (r *REST) checkStrictly(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	preview, err := r.binder.Preview(ctx, claim)
	if err != nil {
		return statusError(claim, err)
	}
	ready := meta.FindStatusCondition(preview.Status.Conditions, v1alpha1.ClaimConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || !claims.AgentRefuses(ready.Reason) {
		return nil
	}
	return apierrors.NewInvalid(kindOf(claim), claim.Name, field.ErrorList{blamed(claim, ready)})
}

// blamed names the field of a claim that a condition is about.
func blamed(claim *v1alpha1.SandboxClaim, ready *metav1.Condition) *field.Error {
	spec := field.NewPath("spec")
	ref := claim.Spec.SandboxTemplateRef
	switch ready.Reason {
	case v1alpha1.ReasonInvalidMetadata:
		return field.Forbidden(spec.Child("additionalPodMetadata"), ready.Message)
	case v1alpha1.ReasonEnvVarsInjectionRejected:
		return field.Forbidden(spec.Child("env"), ready.Message)
	case claims.AgentReasonVolumeClaimTemplates:
		return field.Forbidden(spec.Child("volumeClaimTemplates"), ready.Message)
	case claims.AgentReasonTemplateNotFound:
		if ref != nil {
			return field.NotFound(spec.Child("sandboxTemplateRef", "name"), ref.Name)
		}
	case claims.AgentReasonWarmPoolNotFound:
		if pool := claim.Spec.WarmPoolRef; pool != nil {
			return field.NotFound(spec.Child("warmPoolRef", "name"), pool.Name)
		}
	}
	return field.Forbidden(spec, ready.Message)
}
