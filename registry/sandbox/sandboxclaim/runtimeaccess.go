// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
)

// RuntimeAccess returns the base URL and the access token of the agent-runtime in a
// sandbox that a claim holds. The URL is empty if there is none at the moment.
type RuntimeAccess func(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) (url, token string)

// RuntimeAccessREST serves v1alpha1.SandboxClaimRuntimeAccess. It reads, and writes nothing.
type RuntimeAccessREST struct {
	claims, sandboxes *genericregistry.Store
	access            RuntimeAccess
}

var _ rest.NamedCreater = &RuntimeAccessREST{}

// NewRuntimeAccessREST returns the access to the runtimes in the sandboxes of one store
// that belong to the claims in another.
func NewRuntimeAccessREST(claims, sandboxes *genericregistry.Store, access RuntimeAccess) *RuntimeAccessREST {
	return &RuntimeAccessREST{claims: claims, sandboxes: sandboxes, access: access}
}

// New returns an empty request.
func (*RuntimeAccessREST) New() runtime.Object { return &v1alpha1.SandboxClaimRuntimeAccess{} }

// Destroy does nothing: the storage underneath belongs to the main resources.
func (*RuntimeAccessREST) Destroy() {}

// Create tells how to reach the runtimes of the claim of a name.
func (r *RuntimeAccessREST) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	asked, ok := obj.(*v1alpha1.SandboxClaimRuntimeAccess)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a SandboxClaimRuntimeAccess, got %T", obj))
	}
	if asked.Name != "" && asked.Name != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.name %q is not the name of the claim in the path, %q", asked.Name, name))
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
	claim, err := r.claim(ctx, name, asked)
	if err != nil {
		return nil, err
	}
	bound, err := r.bound(ctx, claim, asked)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.SandboxClaimRuntimeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}, Spec: asked.Spec}
	var told []v1alpha1.ClaimedSandbox
	for _, sb := range bound {
		one := v1alpha1.SandboxRuntimeAccess{Name: sb.Name, UID: sb.UID}
		if one.URL, one.AccessToken = r.access(claim, sb); claim.Spec.SkipInitRuntime {
			one.AccessToken = "" // nobody has set it
		}
		answer.Status.Sandboxes = append(answer.Status.Sandboxes, one)
		told = append(told, v1alpha1.ClaimedSandbox{Name: sb.Name})
	}
	audited(ctx, claim, told)
	return answer, nil
}

func invalidAccess(name string, errs ...*field.Error) error {
	return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SandboxClaimRuntimeAccess").GroupKind(), name, errs)
}

// claim reads the claim, as of now.
func (r *RuntimeAccessREST) claim(ctx context.Context, name string, asked *v1alpha1.SandboxClaimRuntimeAccess) (*v1alpha1.SandboxClaim, error) {
	obj, err := r.claims.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	claim, ok := obj.(*v1alpha1.SandboxClaim)
	if !ok {
		return nil, fmt.Errorf("reading claim %s: got a %T", name, obj)
	}
	if uid := asked.Spec.ClaimUID; uid != "" && uid != claim.UID {
		return nil, apierrors.NewConflict(v1alpha1.Resource("sandboxclaims"), name,
			fmt.Errorf("spec.claimUID is %s, the UID of the claim is %s", uid, claim.UID))
	}
	return claim, nil
}

// bound returns the sandboxes of a claim that are asked for, ordered by name.
func (r *RuntimeAccessREST) bound(ctx context.Context, claim *v1alpha1.SandboxClaim, asked *v1alpha1.SandboxClaimRuntimeAccess) ([]*v1alpha1.Sandbox, error) {
	obj, err := r.sandboxes.List(ctx, &metainternalversion.ListOptions{
		LabelSelector: labels.Set{v1alpha1.LabelClaimName: claim.Name}.AsSelector(),
	})
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*v1alpha1.SandboxList)
	if !ok {
		return nil, fmt.Errorf("listing sandboxes of claim %s: got a %T", claim.Name, obj)
	}
	named := sets.New(asked.Spec.SandboxNames...)
	unknown := named.Clone()
	var bound []*v1alpha1.Sandbox
	for i := range list.Items {
		sb := &list.Items[i]
		if !isBound(sb, claim) {
			continue
		}
		unknown.Delete(sb.Name)
		counts := sb.Annotations[v1alpha1.AnnotationStarting] == "" && sb.Labels[v1alpha1.LabelReservedFailedSandbox] == ""
		if named.Has(sb.Name) || len(named) == 0 && counts {
			bound = append(bound, sb)
		}
	}
	if most := validation.MaxRuntimeAccess; len(bound) > most {
		return nil, invalidAccess(claim.Name, field.Required(field.NewPath("spec", "sandboxNames"),
			fmt.Sprintf("claim %s has more than %d sandboxes: name those to tell of, %d at most", claim.Name, most, most)))
	}
	for i, name := range asked.Spec.SandboxNames {
		if unknown.Has(name) {
			return nil, invalidAccess(claim.Name, field.Invalid(field.NewPath("spec", "sandboxNames").Index(i), name, "is no sandbox of claim "+claim.Name))
		}
	}
	slices.SortFunc(bound, func(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) })
	return bound, nil
}
