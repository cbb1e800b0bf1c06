// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// NewStore returns the store of templates. It validates each template by itself:
// NewREST makes what is served.
func NewStore(scheme *runtime.Scheme, optsGetter generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	return base.NewStore(&genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.SandboxTemplate{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.SandboxTemplateList{} },
		DefaultQualifiedResource:  v1alpha1.Resource("sandboxtemplates"),
		SingularQualifiedResource: v1alpha1.Resource("sandboxtemplate"),
		TableConvertor:            NewTableConvertor(clock.RealClock{}),
	}, NewStrategy(scheme, nil), &generic.StoreOptions{RESTOptions: optsGetter})
}

// NewREST returns what is served from the store of templates: the same storage
// underneath, and pods validated by pods, which may read from the store, or be nil. Who
// may write the revisions of sets is asked of may; owners reads the sets.
func NewREST(
	scheme *runtime.Scheme, store *genericregistry.Store, pods PodValidator, may authorizer.UnconditionalAuthorizer, owners accesscheck.OwnerGetter,
) *accesscheck.REST {
	strategy := NewStrategy(scheme, pods)
	served := *store
	served.CreateStrategy, served.UpdateStrategy = strategy, strategy
	main := base.NewSharedREST(&served, "sbt")
	main.DeletionWarnings = newDeletionWarnings(pods)
	return accesscheck.NewREST(main, &accesscheck.Checker{
		Resource: "sandboxtemplates", Authorizer: may, Owners: owners, Needed: rightsNeeded,
	})
}

// rightsNeeded returns the rights that a write of a template takes beyond the one to
// write templates: a set makes sandboxes of those that it controls.
func rightsNeeded(obj, old runtime.Object) ([]accesscheck.Right, error) {
	template, err := templateOrNone(obj)
	if err != nil {
		return nil, err
	}
	before, err := templateOrNone(old)
	if err != nil {
		return nil, err
	}
	set := setOf(before)
	switch {
	case set != nil && obj == nil:
		// Who may delete the set may do so with what it owns, as garbage collectors and
		// the deletion of namespaces do.
		right := accesscheck.Adopt(set.Name, field.NewPath("metadata", "ownerReferences"))
		right.Or, right.Left = "delete", set
		return []accesscheck.Right{right}, nil
	case set != nil:
		return append(accesscheck.ForOwners(controllers(template), controllers(before)), rightsForChange(template, before, set)...), nil
	default:
		return accesscheck.ForOwners(controllers(template), controllers(before)), nil
	}
}

// templateOrNone returns an object as a template, and an empty one where there is none.
func templateOrNone(obj runtime.Object) (*v1alpha1.SandboxTemplate, error) {
	if obj == nil {
		return &v1alpha1.SandboxTemplate{}, nil
	}
	template, ok := obj.(*v1alpha1.SandboxTemplate)
	if !ok {
		return nil, fmt.Errorf("checking a write: %T is not a SandboxTemplate", obj)
	}
	return template, nil
}

// controllers returns the reference to the set that controls a template, if any.
func controllers(template *v1alpha1.SandboxTemplate) []metav1.OwnerReference {
	if set := setOf(template); set != nil {
		return []metav1.OwnerReference{*set}
	}
	return nil
}

// rightsForChange returns what it takes to change what the set of a template reads in it.
func rightsForChange(template, old *v1alpha1.SandboxTemplate, set *metav1.OwnerReference) []accesscheck.Right {
	var needed []accesscheck.Right
	meta := field.NewPath("metadata")
	for _, part := range []struct {
		path        *field.Path
		values, old map[string]string
	}{
		{meta.Child("labels"), template.Labels, old.Labels},
		{meta.Child("annotations"), template.Annotations, old.Annotations},
	} {
		for _, key := range accesscheck.Changed(part.values, part.old) {
			if accesscheck.IsSystemKey(key) {
				needed = append(needed, accesscheck.Adopt(set.Name, part.path.Key(key)))
			}
		}
	}
	return needed
}
