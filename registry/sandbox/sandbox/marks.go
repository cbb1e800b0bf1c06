// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// A sandbox is believed by its marks: its owner reference says in which pool it is,
// and what a claim writes says whose it is. So the right to write sandboxes is not
// enough to write those.
const (
	// VerbAdopt on sandboxsets is the right to put sandboxes into a set's pool, to take
	// them out, and to change those in it.
	VerbAdopt = "adopt"
	// VerbBind on sandboxclaims is the right to write the marks of claims on sandboxes.
	VerbBind = "bind"
)

// claimAnnotations and claimLabels are what claims write. Of LabelSandboxClaimed only
// ClaimedTrue is a claim's.
var (
	claimAnnotations = sets.New(
		v1alpha1.AnnotationLock,
		v1alpha1.AnnotationOwner,
		v1alpha1.AnnotationClaimTimestamp,
		v1alpha1.AnnotationUpdatedMetadataInClaim,
	)
	claimLabels = sets.New(
		v1alpha1.LabelClaimName,
		v1alpha1.LabelReservedFailedSandbox,
	)
)

// right is a right that a write of a sandbox takes.
type right struct {
	verb, resource, name string
	// field is what the right is needed for.
	field *field.Path
	// left is the reference to an owner that the write takes away. That is no more
	// than tidying up where the owner is gone or being deleted: garbage collectors do
	// that.
	left *metav1.OwnerReference
}

// rightsFor returns the rights that a write takes beyond the one to write sandboxes. A
// new sandbox has an empty one before it.
func rightsFor(sandbox, old *v1alpha1.Sandbox) []right {
	meta := field.NewPath("metadata")
	rights := rightsForOwners(sandbox.OwnerReferences, old.OwnerReferences, meta.Child("ownerReferences"))
	pool := v1alpha1.PoolOf(old)
	change := func(path *field.Path, key string, claims bool) {
		switch {
		case claims:
			rights = append(rights, right{verb: VerbBind, resource: "sandboxclaims", field: path.Key(key)})
		case pool != nil && isSystemKey(key): // what the next claim would be given
			rights = append(rights, right{verb: VerbAdopt, resource: "sandboxsets", name: pool.Name, field: path.Key(key)})
		}
	}
	for _, key := range changed(sandbox.Annotations, old.Annotations) {
		change(meta.Child("annotations"), key, claimAnnotations.Has(key) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix))
	}
	for _, key := range changed(sandbox.Labels, old.Labels) {
		claimed := key == v1alpha1.LabelSandboxClaimed &&
			(sandbox.Labels[key] == v1alpha1.ClaimedTrue || old.Labels[key] == v1alpha1.ClaimedTrue)
		change(meta.Child("labels"), key, claimed || claimLabels.Has(key))
	}
	if pool != nil && base.SpecChanged(&sandbox.Spec.EmbeddedSandboxTemplate, &old.Spec.EmbeddedSandboxTemplate, base.CanonicalizeTemplate) {
		rights = append(rights, right{verb: VerbAdopt, resource: "sandboxsets", name: pool.Name, field: field.NewPath("spec", "template")})
	}
	return rights
}

// rightsForOwners returns what it takes to make a set or a claim an owner, its
// controller or not, or to take it away. Whether an owner waits for the sandbox to be
// deleted is not a matter of trust.
func rightsForOwners(refs, old []metav1.OwnerReference, path *field.Path) []right {
	var rights []right
	add := func(ref metav1.OwnerReference, left *metav1.OwnerReference) {
		if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != v1alpha1.GroupName {
			return
		}
		switch ref.Kind {
		case "SandboxSet":
			rights = append(rights, right{verb: VerbAdopt, resource: "sandboxsets", name: ref.Name, field: path, left: left})
		case "SandboxClaim":
			rights = append(rights, right{verb: VerbBind, resource: "sandboxclaims", field: path, left: left})
		}
	}
	for _, ref := range refs {
		if !slices.ContainsFunc(old, sameOwner(ref)) {
			add(ref, nil)
		}
	}
	for _, ref := range old {
		if !slices.ContainsFunc(refs, sameOwner(ref)) {
			add(ref, &ref)
		}
	}
	return rights
}

func sameOwner(a metav1.OwnerReference) func(metav1.OwnerReference) bool {
	return func(b metav1.OwnerReference) bool {
		return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
			ptr.Deref(a.Controller, false) == ptr.Deref(b.Controller, false)
	}
}

// isSystemKey reports whether a key of a label or annotation says something to the
// system, rather than to the users of a sandbox.
func isSystemKey(key string) bool {
	for _, prefix := range []string{v1alpha1.KeyPrefix, v1alpha1.SandboxKeyPrefix, v1alpha1.E2BKeyPrefix, v1alpha1.SandlotKeyPrefix} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// changed returns the keys with another value than before, sorted.
func changed(values, old map[string]string) []string {
	keys := sets.New[string]()
	for key, value := range values {
		if was, ok := old[key]; !ok || was != value {
			keys.Insert(key)
		}
	}
	for key := range maps.Keys(old) {
		if _, ok := values[key]; !ok {
			keys.Insert(key)
		}
	}
	return sets.List(keys)
}

// OwnerGetter reads the set or claim that a reference of a sandbox in a namespace
// names. It returns nil if there is none of that UID.
type OwnerGetter func(ctx context.Context, namespace string, ref *metav1.OwnerReference) (metav1.Object, error)

// guard lets marks be written by those only who have the right to. It stands where
// validating admission does: below all verbs, apply and dry runs, and after everything
// that changes the sandbox. Transactions of the allocator do not pass it.
type guard struct {
	authorizer authorizer.UnconditionalAuthorizer
	owners     OwnerGetter
}

// create checks new sandboxes before admit does.
func (g *guard) create(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := g.check(ctx, obj, &v1alpha1.Sandbox{}); err != nil || admit == nil {
			return err
		}
		return admit(ctx, obj)
	}
}

// update checks changed sandboxes before admit does.
func (g *guard) update(admit rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if err := g.check(ctx, obj, old); err != nil || admit == nil {
			return err
		}
		return admit(ctx, obj, old)
	}
}

func (g *guard) check(ctx context.Context, obj, old runtime.Object) error {
	sandbox, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return fmt.Errorf("checking a write: %T is not a Sandbox", obj)
	}
	before, ok := old.(*v1alpha1.Sandbox)
	if !ok {
		return fmt.Errorf("checking a write: %T is not a Sandbox", old)
	}
	for _, r := range rightsFor(sandbox, before) {
		if err := g.require(ctx, sandbox, &r); err != nil {
			return err
		}
	}
	return nil
}

// require fails with 403 where the user lacks a right.
func (g *guard) require(ctx context.Context, sandbox *v1alpha1.Sandbox, r *right) error {
	user, _ := genericapirequest.UserFrom(ctx)
	decision, reason, err := authorizer.DecisionNoOpinion, "", error(nil)
	if user != nil {
		decision, reason, err = g.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: user, Verb: r.verb, Namespace: sandbox.Namespace,
			APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version, Resource: r.resource, Name: r.name,
			ResourceRequest: true,
		})
	}
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("asking for the right to change %s: %w", r.field, err))
	}
	if r.left != nil {
		owner, err := g.owners(ctx, sandbox.Namespace, r.left)
		if err != nil {
			return fmt.Errorf("reading the owner %s %s: %w", r.left.Kind, r.left.Name, err)
		}
		if owner == nil || owner.GetDeletionTimestamp() != nil {
			return nil
		}
	}
	what := r.resource
	if r.name != "" {
		what += "/" + r.name
	}
	return apierrors.NewForbidden(v1alpha1.Resource("sandboxes"), cmp.Or(sandbox.Name, sandbox.GenerateName), fmt.Errorf(
		"%s: to write this takes the verb %q on %s of %s in the namespace %q%s",
		r.field, r.verb, what, v1alpha1.GroupName, sandbox.Namespace, because(reason)))
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
