// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install registers the API groups for the API server. Clients and
// controllers use v1alpha1.AddToScheme instead, because in the scheme made here
// each Go type has two versions, which controller-runtime cannot work with.
package install

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Install registers the kinds as v1alpha1, and the same Go types once more as the
// internal version.
//
// The generic API server converts to the internal version in three places: when
// it decodes etcd's watch, for strategic merge patches, and for server-side
// apply. Types of their own for it would be a copy of v1alpha1 with conversions
// that copy every object; the alias makes them the same objects.
func Install(scheme *runtime.Scheme) {
	installHub(scheme)
	installAgentSandbox(scheme)
}

func installHub(scheme *runtime.Scheme) {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	addInternalAlias(scheme)
	utilruntime.Must(addFieldLabels(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}

// addInternalAlias takes every type that v1alpha1 itself defines; the others of
// the group version, such as ListOptions, are known internally without it.
func addInternalAlias(scheme *runtime.Scheme) {
	own := reflect.TypeFor[v1alpha1.SandboxClaim]().PkgPath()
	internal := schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}
	for kind, goType := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		if goType.PkgPath() == own {
			scheme.AddKnownTypeWithName(internal.WithKind(kind), reflect.New(goType).Interface().(runtime.Object))
		}
	}
}

// addFieldLabels lets lists and watches of the kinds that have a phase select by
// it. The other kinds have metadata.name and metadata.namespace by default.
func addFieldLabels(scheme *runtime.Scheme) error {
	for _, kind := range []string{"SandboxClaim", "Sandbox"} {
		gvk := v1alpha1.SchemeGroupVersion.WithKind(kind)
		if err := scheme.AddFieldLabelConversionFunc(gvk, phaseFieldLabel); err != nil {
			return fmt.Errorf("field labels of %s: %w", kind, err)
		}
	}
	return nil
}

func phaseFieldLabel(label, value string) (string, string, error) {
	switch label {
	case "metadata.name", "metadata.namespace", "status.phase":
		return label, value, nil
	}
	return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q and %q are",
		label, "metadata.name", "metadata.namespace", "status.phase")
}
