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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// holdings finds claims and what is bound to them, for the subresources by which users
// deal with the sandboxes of a claim.
type holdings struct {
	claims, sandboxes *genericregistry.Store
}

// sameName refuses a request whose name is not that of the claim in the path.
func sameName(asked metav1.Object, name string) error {
	if asked.GetName() != "" && asked.GetName() != name {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.name %q is not the name of the claim in the path, %q", asked.GetName(), name))
	}
	return nil
}

// claim reads a claim, as of now. It must have the UID, if that is not empty.
func (h *holdings) claim(ctx context.Context, name string, uid types.UID) (*v1alpha1.SandboxClaim, error) {
	obj, err := h.claims.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	claim, ok := obj.(*v1alpha1.SandboxClaim)
	if !ok {
		return nil, fmt.Errorf("reading claim %s: got a %T", name, obj)
	}
	if uid != "" && uid != claim.UID {
		return nil, conflict(name, "spec.claimUID is %s, the UID of the claim is %s", uid, claim.UID)
	}
	return claim, nil
}

func conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(v1alpha1.Resource("sandboxclaims"), name, fmt.Errorf(format, args...))
}

// bound returns the sandboxes that are bound to a claim and have these names, or, if there
// are no names, of which otherwise is true. They are ordered by name. unknown are the names
// that no bound sandbox has.
func (h *holdings) bound(ctx context.Context, claim *v1alpha1.SandboxClaim, names []string, otherwise func(*v1alpha1.Sandbox) bool) (
	bound []*v1alpha1.Sandbox, unknown sets.Set[string], err error) {
	if len(names) == 1 {
		return h.one(ctx, claim, names[0])
	}
	end, err := base.BeginWork(ctx, len(claim.Status.Sandboxes)*base.SandboxWork)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	obj, err := h.sandboxes.List(ctx, &metainternalversion.ListOptions{
		LabelSelector: labels.Set{v1alpha1.LabelClaimName: claim.Name}.AsSelector(),
	})
	if err != nil {
		return nil, nil, err
	}
	list, ok := obj.(*v1alpha1.SandboxList)
	if !ok {
		return nil, nil, fmt.Errorf("listing sandboxes of claim %s: got a %T", claim.Name, obj)
	}
	named := sets.New(names...)
	unknown = named.Clone()
	for i := range list.Items {
		sb := &list.Items[i]
		if !v1alpha1.IsBoundTo(sb, claim) {
			continue
		}
		unknown.Delete(sb.Name)
		if named.Has(sb.Name) || len(named) == 0 && otherwise(sb) {
			bound = append(bound, sb)
		}
	}
	slices.SortFunc(bound, func(a, b *v1alpha1.Sandbox) int { return cmp.Compare(a.Name, b.Name) })
	return bound, unknown, nil
}

// one is bound of one name. A get asks etcd; a list waits until the cache has come as far as
// that, which right after a claim takes longer.
func (h *holdings) one(ctx context.Context, claim *v1alpha1.SandboxClaim, name string) ([]*v1alpha1.Sandbox, sets.Set[string], error) {
	obj, err := h.sandboxes.Get(ctx, name, &metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, sets.New(name), nil
	case err != nil:
		return nil, nil, err
	}
	sb, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return nil, nil, fmt.Errorf("reading sandbox %s of claim %s: got a %T", name, claim.Name, obj)
	}
	if !v1alpha1.IsBoundTo(sb, claim) {
		return nil, sets.New(name), nil
	}
	return []*v1alpha1.Sandbox{sb}, nil, nil
}

var namesPath = field.NewPath("spec", "sandboxNames")

// firstUnknown is what is wrong with the first of the names that is unknown; nil if none is.
func firstUnknown(claim *v1alpha1.SandboxClaim, names []string, unknown sets.Set[string]) *field.Error {
	at := slices.IndexFunc(names, unknown.Has)
	if at < 0 {
		return nil
	}
	return field.Invalid(namesPath.Index(at), names[at], "is no sandbox of claim "+claim.Name)
}
