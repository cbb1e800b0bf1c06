// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accesscheck checks the rights that a write takes beyond the one to write objects of
// its kind, because the server trusts what is written: owners and marks of sandboxes, and of the
// templates that hold the revisions of sets.
package accesscheck

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

const (
	// VerbAdopt on sandboxsets is the right to put sandboxes into a set's pool, to take
	// them out, to change what the next claim gets of those in it, and to do so with the templates that hold its
	// revisions.
	VerbAdopt = "adopt"
	// VerbBind on sandboxclaims is the right to write the marks of claims on sandboxes.
	VerbBind = "bind"
)

// Right is a right that a write takes. One that is refused it gets 403.
type Right struct {
	// Verb, Resource and Name are what the authorizer is asked for. No name is all.
	Verb, Resource, Name string
	// Or is another verb that is enough, or empty.
	Or string
	// Claimer is the ClaimedByLabel of the user who does not need the right; empty if there is
	// none.
	Claimer string
	// Field is what the right is needed for.
	Field *field.Path
	// Left is the reference to an owner that the write takes away, or whose property it
	// deletes. That is no more than tidying up where the owner is gone or being deleted:
	// garbage collectors do that, and need no right.
	Left *metav1.OwnerReference
}

// Adopt is the right to adopt for a set.
func Adopt(set string, path *field.Path) Right {
	return Right{Verb: VerbAdopt, Resource: "sandboxsets", Name: set, Field: path}
}

// Bind is the right to bind.
func Bind(path *field.Path) Right {
	return Right{Verb: VerbBind, Resource: "sandboxclaims", Field: path}
}

// ToChangePod returns the rights that a change of the pod template of a sandbox requires: create
// on sandboxes, because the pod can be any that a new sandbox could have, and, if the sandbox is
// or was bound to a claim, bind, unless the user created the claim. claimer is the ClaimedByLabel
// of that user; empty if it is not known.
func ToChangePod(bound bool, claimer string, path *field.Path) []Right {
	needed := []Right{{Verb: "create", Resource: "sandboxes", Field: path}}
	if bound {
		bind := Bind(path)
		bind.Claimer = claimer
		needed = append(needed, bind)
	}
	return needed
}

// ForOwners returns what it takes to make a set or a claim an owner, its controller or
// not, or to take it away. Whether an owner waits for the object to be deleted is not a
// matter of trust.
func ForOwners(refs, old []metav1.OwnerReference) []Right {
	path := field.NewPath("metadata", "ownerReferences")
	var rights []Right
	add := func(ref metav1.OwnerReference, left *metav1.OwnerReference) {
		var right Right
		switch v1alpha1.OwnerKind(&ref) {
		case "SandboxSet":
			right = Adopt(ref.Name, path)
		case "SandboxClaim":
			right = Bind(path)
		default:
			return
		}
		right.Left = left
		rights = append(rights, right)
	}
	had, has := ownershipsOf(old), ownershipsOf(refs)
	for _, ref := range refs {
		if !had.Has(ownershipOf(ref)) {
			add(ref, nil)
		}
	}
	for _, ref := range old {
		if !has.Has(ownershipOf(ref)) {
			add(ref, &ref)
		}
	}
	return rights
}

// ownership is what a reference to an owner says about who that is.
type ownership struct {
	apiVersion, kind, name string
	uid                    types.UID
	controller             bool
}

func ownershipOf(ref metav1.OwnerReference) ownership {
	return ownership{ref.APIVersion, ref.Kind, ref.Name, ref.UID, ptr.Deref(ref.Controller, false)}
}

// ownershipsOf returns a set, because an object may have many thousand references.
func ownershipsOf(refs []metav1.OwnerReference) sets.Set[ownership] {
	all := sets.New[ownership]()
	for _, ref := range refs {
		all.Insert(ownershipOf(ref))
	}
	return all
}

// Changed returns the keys with another value than before, sorted.
func Changed(values, old map[string]string) []string {
	keys := sets.New[string]()
	for key, value := range values {
		if was, ok := old[key]; !ok || was != value {
			keys.Insert(key)
		}
	}
	for key := range old {
		if _, ok := values[key]; !ok {
			keys.Insert(key)
		}
	}
	return sets.List(keys)
}

// IsSystemKey reports whether a key of a label or annotation says something to the
// system, rather than to the users of a sandbox, or is written by claims.
func IsSystemKey(key string) bool {
	for _, prefix := range []string{
		v1alpha1.KeyPrefix, v1alpha1.SandboxKeyPrefix, v1alpha1.E2BKeyPrefix, v1alpha1.SandlotKeyPrefix, v1alpha1.AgentKeyPrefix,
	} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return key == v1alpha1.AgentAnnotationTraceContext
}

// OwnerGetter reads the set or claim that a reference of an object in a namespace
// names. It returns nil if there is none of that UID.
type OwnerGetter func(ctx context.Context, namespace string, ref *metav1.OwnerReference) (metav1.Object, error)

// Checker checks that a user has the rights that a write takes. It is called where validating
// admission is: below all verbs, apply and dry runs, and after everything that changes the
// object. Transactions of the allocator do not pass it.
type Checker struct {
	// Resource is that of the objects.
	Resource   string
	Authorizer authorizer.UnconditionalAuthorizer
	Owners     OwnerGetter
	// Needed returns the rights that a write takes; old is nil for a new object, and obj
	// for one that is deleted. Nil is none.
	Needed func(obj, old runtime.Object) ([]Right, error)
	// PodRights returns the rights that an update requires because it changes what pods run;
	// empty if it does not. If any are required, AdmitPodChange must also admit the object.
	// Both may be nil.
	PodRights      func(obj, old runtime.Object) []Right
	AdmitPodChange func(ctx context.Context, obj runtime.Object, dryRun bool) error
}

// Create checks new objects before admit does.
func (c *Checker) Create(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := c.check(ctx, obj, nil); err != nil || admit == nil {
			return err
		}
		return admit(ctx, obj)
	}
}

// Update checks changed objects before admit does. ctx must come from WithRequested, or what
// admission changes counts as requested.
func (c *Checker) Update(admit rest.ValidateObjectUpdateFunc, dryRun bool) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if err := c.check(ctx, obj, old); err != nil {
			return err
		}
		if needed := c.podRights(ctx, obj, old); len(needed) > 0 {
			if err := c.requireAll(ctx, obj, needed); err != nil {
				return err
			}
			if c.AdmitPodChange != nil {
				if err := c.AdmitPodChange(ctx, obj, dryRun); err != nil {
					return err
				}
			}
		}
		if admit == nil {
			return nil
		}
		return admit(ctx, obj, old)
	}
}

// Delete checks objects that are to be deleted before admit does.
func (c *Checker) Delete(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, old runtime.Object) error {
		if err := c.check(ctx, nil, old); err != nil || admit == nil {
			return err
		}
		return admit(ctx, old)
	}
}

func (c *Checker) check(ctx context.Context, obj, old runtime.Object) error {
	if c.Needed == nil {
		return nil
	}
	needed, err := c.Needed(obj, old)
	if err != nil {
		return err
	}
	if obj == nil {
		obj = old
	}
	return c.requireAll(ctx, obj, needed)
}

// requireAll fails with 403 where the user lacks one of rights to obj.
func (c *Checker) requireAll(ctx context.Context, obj runtime.Object, needed []Right) error {
	if len(needed) == 0 {
		return nil
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("checking a write: %w", err)
	}
	for _, r := range needed {
		if err := c.require(ctx, object, &r); err != nil {
			return err
		}
	}
	return nil
}

// require fails with 403 where the user lacks a right.
func (c *Checker) require(ctx context.Context, object metav1.Object, r *Right) error {
	if r.Claimer != "" && isUser(ctx, r.Claimer) {
		return nil
	}
	var reason string
	for _, verb := range []string{r.Verb, r.Or} {
		if verb == "" {
			continue
		}
		allowed, why, err := c.allowed(ctx, object.GetNamespace(), verb, r)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("asking for the right to change %s: %w", r.Field, err))
		}
		if allowed {
			return nil
		}
		reason = cmp.Or(reason, why)
	}
	if r.Left != nil {
		owner, err := c.Owners(ctx, object.GetNamespace(), r.Left)
		if err != nil {
			return fmt.Errorf("reading the owner %s %s: %w", r.Left.Kind, r.Left.Name, err)
		}
		if owner == nil || owner.GetDeletionTimestamp() != nil {
			return nil
		}
	}
	asked := resourceInRequestGroup(ctx, r.Resource)
	what := asked.Resource
	if r.Name != "" {
		what += "/" + r.Name
	}
	return apierrors.NewForbidden(resourceInRequestGroup(ctx, c.Resource).GroupResource(), cmp.Or(object.GetName(), object.GetGenerateName()), fmt.Errorf(
		"%s: writing this field requires the verb %q on %s of %s in the namespace %q%s",
		fieldInRequestGroup(ctx, r.Field), r.Verb, what, asked.Group, object.GetNamespace(), because(reason)))
}

// isUser reports whether a request is made by the user of a label.
func isUser(ctx context.Context, label string) bool {
	user, ok := genericapirequest.UserFrom(ctx)
	return ok && user != nil && user.GetName() != "" && v1alpha1.ClaimedByLabel(user.GetName()) == label
}

func (c *Checker) allowed(ctx context.Context, namespace, verb string, r *Right) (bool, string, error) {
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok || user == nil {
		return false, "", nil
	}
	asked := resourceInRequestGroup(ctx, r.Resource)
	decision, reason, err := c.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: user, Verb: verb, Namespace: namespace,
		APIGroup: asked.Group, APIVersion: asked.Version, Resource: asked.Resource, Name: r.Name,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return true, "", nil
	}
	return false, reason, err
}

// resourceInRequestGroup returns a resource in the API group of the request, in which the user has
// rights.
func resourceInRequestGroup(ctx context.Context, resource string) schema.GroupVersionResource {
	if !base.OfAgentSandbox(ctx) {
		return v1alpha1.SchemeGroupVersion.WithResource(resource)
	}
	group := v1alpha1.ExtensionsGroup
	switch resource {
	case "sandboxes":
		group = v1alpha1.AgentsGroup
	case "sandboxsets":
		resource = "sandboxwarmpools"
	}
	return schema.GroupVersionResource{Group: group, Version: base.GroupOf(ctx).Version, Resource: resource}
}

// fieldInRequestGroup returns the path of a field in the API group of the request.
func fieldInRequestGroup(ctx context.Context, path *field.Path) string {
	if is := path.String(); is != "spec.template" || !base.OfAgentSandbox(ctx) {
		return is
	}
	return "spec.podTemplate"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
