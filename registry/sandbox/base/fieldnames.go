// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// sharedFields are the fields that have the same meaning in the stored version and in another
// one: their path in the stored version, and their path in the other. Fields below these have
// the same names in both.
type sharedFields [][2]string

var (
	claimFieldsV1alpha1 = sharedFields{
		{"spec.sandboxTemplateRef", "spec.sandboxTemplateRef"}, {"spec.warmPool", "spec.warmpool"}, {"spec.lifecycle", "spec.lifecycle"},
		{"spec.additionalPodMetadata", "spec.additionalPodMetadata"}, {"spec.env", "spec.env"}, {"status.conditions", "status.conditions"},
	}
	claimFieldsV1beta1 = append(slices.Clone(claimFieldsV1alpha1),
		[2]string{"spec.warmPoolRef", "spec.warmPoolRef"}, [2]string{"spec.volumeClaimTemplates", "spec.volumeClaimTemplates"})
	templateFields = sharedFields{
		{"spec.template", "spec.podTemplate"}, {"spec.volumeClaimTemplates", "spec.volumeClaimTemplates"}, {"spec.service", "spec.service"},
		{"spec.networkPolicy", "spec.networkPolicy"}, {"spec.networkPolicyManagement", "spec.networkPolicyManagement"},
		{"spec.envVarsInjectionPolicy", "spec.envVarsInjectionPolicy"}, {"spec.volumeClaimTemplatesPolicy", "spec.volumeClaimTemplatesPolicy"},
	}
	poolFieldsV1alpha1 = sharedFields{
		{"spec.replicas", "spec.replicas"}, {"spec.templateRef.name", "spec.sandboxTemplateRef.name"},
		{"spec.updateStrategy.type", "spec.updateStrategy.type"}, {"status.replicas", "status.replicas"},
		{"status.availableReplicas", "status.readyReplicas"}, {"status.observedGeneration", "status.observedGeneration"},
		{"status.conditions", "status.conditions"},
	}
	poolFieldsV1beta1 = append(slices.Clone(poolFieldsV1alpha1), [2]string{"spec.claimDefaults", "spec.claimDefaults"})
	sandboxFields     = sharedFields{
		{"spec.template", "spec.podTemplate"}, {"spec.volumeClaimTemplates", "spec.volumeClaimTemplates"}, {"spec.service", "spec.service"},
		{"spec.shutdownTime", "spec.shutdownTime"},
	}
)

// fieldsOf returns the fields of an object that a version shares with the stored one.
func fieldsOf(obj runtime.Object, version schema.GroupVersion) sharedFields {
	old := version.Version == "v1alpha1"
	switch obj.(type) {
	case *v1alpha1.SandboxClaim:
		if old {
			return claimFieldsV1alpha1
		}
		return claimFieldsV1beta1
	case *v1alpha1.SandboxTemplate:
		return templateFields
	case *v1alpha1.SandboxSet:
		if old {
			return poolFieldsV1alpha1
		}
		return poolFieldsV1beta1
	case *v1alpha1.Sandbox:
		if old {
			return append(slices.Clone(sandboxFields), [2]string{"spec.paused", "spec.replicas"})
		}
		return append(slices.Clone(sandboxFields), [2]string{"spec.paused", "spec.operatingMode"})
	}
	return nil
}

// translate returns the path of a field in another version; nil if that version does not share
// the field.
func translate(path fieldpath.Path, obj runtime.Object, from, to schema.GroupVersion) fieldpath.Path {
	if len(path) > 0 && path[0].FieldName != nil && *path[0].FieldName == "metadata" {
		return path
	}
	stored := move(path, fieldsOf(obj, from), from, 1, 0)
	return move(stored, fieldsOf(obj, to), to, 0, 1)
}

// move translates a path between the stored version and another one, by the paths at the
// indexes from and to of fields. In the stored version itself a path is the same.
func move(path fieldpath.Path, fields sharedFields, version schema.GroupVersion, from, to int) fieldpath.Path {
	if path == nil || version.Group == v1alpha1.GroupName {
		return path
	}
	for _, pair := range fields {
		is, becomes := strings.Split(pair[from], "."), strings.Split(pair[to], ".")
		if len(path) < len(is) || !slices.EqualFunc(is, path[:len(is)], func(name string, element fieldpath.PathElement) bool {
			return element.FieldName != nil && *element.FieldName == name
		}) {
			continue
		}
		moved := make(fieldpath.Path, 0, len(path))
		for _, name := range becomes {
			moved = append(moved, fieldpath.PathElement{FieldName: &name})
		}
		return append(moved, path[len(is):]...)
	}
	return nil
}
