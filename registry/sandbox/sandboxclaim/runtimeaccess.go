// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	rules "github.com/sandlot-io/sandlot/pkg/claims"
)

// Runtimes knows the agent-runtimes in sandboxes.
type Runtimes interface {
	// URL returns the base URL of the runtime in a sandbox; empty if there is none at the
	// moment.
	URL(sb *v1alpha1.Sandbox) string
	// Token returns the access token of the runtime in a sandbox that the claim of a UID holds.
	Token(ctx context.Context, claim types.UID, sb *v1alpha1.Sandbox) (string, error)
	// TokenIn is Token for a sandbox that a claim has in its status, which is read. It returns
	// an empty one if the claim does not hold it any more, or none was set.
	TokenIn(ctx context.Context, claim *v1alpha1.SandboxClaim, in v1alpha1.ClaimedSandbox) (string, error)
}

// RuntimeAccessREST serves v1alpha1.SandboxClaimRuntimeAccess. It reads, and writes nothing.
type RuntimeAccessREST struct {
	holdings
	runtimes Runtimes
}

var _ rest.NamedCreater = &RuntimeAccessREST{}

// NewRuntimeAccessREST returns the access to the runtimes in the sandboxes of one store
// that belong to the claims in another.
func NewRuntimeAccessREST(claims, sandboxes *genericregistry.Store, runtimes Runtimes) *RuntimeAccessREST {
	return &RuntimeAccessREST{holdings: holdings{claims, sandboxes}, runtimes: runtimes}
}

// New returns an empty request.
func (*RuntimeAccessREST) New() runtime.Object { return &v1alpha1.SandboxClaimRuntimeAccess{} }

// Destroy does nothing: the storage underneath belongs to the main resources.
func (*RuntimeAccessREST) Destroy() {}

// Create returns how to reach the runtimes of the claim of a name.
func (r *RuntimeAccessREST) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	asked, ok := obj.(*v1alpha1.SandboxClaimRuntimeAccess)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a SandboxClaimRuntimeAccess, got %T", obj))
	}
	if err := sameName(asked, name); err != nil {
		return nil, err
	}
	asked.Status = v1alpha1.SandboxClaimRuntimeAccessStatus{}
	if errs := validation.ValidateSandboxClaimRuntimeAccess(asked); len(errs) > 0 {
		return nil, invalidAccess(name, errs...)
	}
	if admit != nil {
		if err := admit(ctx, asked.DeepCopy()); err != nil {
			return nil, err
		}
	}
	claim, err := r.claim(ctx, name, asked.Spec.ClaimUID)
	if err != nil {
		return nil, err
	}
	bound, err := r.asked(ctx, claim, asked.Spec.SandboxNames)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.SandboxClaimRuntimeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}, Spec: asked.Spec}
	var returned []v1alpha1.ClaimedSandbox
	for _, sb := range bound {
		token := "" // where none was set
		if rules.HasToken(claim, sb) {
			if token, err = r.runtimes.Token(ctx, claim.UID, sb); err != nil {
				return nil, fmt.Errorf("access token of sandbox %s: %w", sb.Name, err)
			}
		}
		answer.Status.Sandboxes = append(answer.Status.Sandboxes, v1alpha1.SandboxRuntimeAccess{
			Name: sb.Name, UID: sb.UID, URL: r.runtimes.URL(sb), AccessToken: token,
		})
		returned = append(returned, v1alpha1.ClaimedSandbox{Name: sb.Name})
	}
	addAuditAnnotations(ctx, claim, returned)
	return answer, nil
}

func invalidAccess(name string, errs ...*field.Error) error {
	return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SandboxClaimRuntimeAccess").GroupKind(), name, errs)
}

// asked returns the sandboxes of a claim that are asked for, ordered by name.
func (r *RuntimeAccessREST) asked(ctx context.Context, claim *v1alpha1.SandboxClaim, names []string) ([]*v1alpha1.Sandbox, error) {
	bound, unknown, err := r.bound(ctx, claim, names, func(sb *v1alpha1.Sandbox) bool {
		return sb.Annotations[v1alpha1.AnnotationStarting] == "" && sb.Labels[v1alpha1.LabelReservedFailedSandbox] == ""
	})
	if err != nil {
		return nil, err
	}
	if most := validation.MaxRuntimeAccess; len(bound) > most {
		return nil, invalidAccess(claim.Name, field.Required(namesPath,
			fmt.Sprintf("claim %s has more than %d sandboxes: name at most %d of them in sandboxNames", claim.Name, most, most)))
	}
	if wrong := firstUnknown(claim, names, unknown); wrong != nil {
		return nil, invalidAccess(claim.Name, wrong)
	}
	return bound, nil
}
