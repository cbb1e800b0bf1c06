// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// RevisionName is the name of the SandboxTemplate that holds a revision of a set.
func RevisionName(set *v1alpha1.SandboxSet, revision string) string { return set.Name + "-" + revision }

// IsRevision says whether a template holds a revision of a set. That a set owns it is
// not enough: users can say that of a template of theirs.
func IsRevision(template *v1alpha1.SandboxTemplate) bool {
	owner := metav1.GetControllerOfNoCopy(template)
	if owner == nil || owner.Kind != "SandboxSet" || !strings.HasPrefix(owner.APIVersion, v1alpha1.GroupName+"/") {
		return false
	}
	revision := template.Labels[v1alpha1.LabelTemplateHash]
	return revision != "" && template.Name == owner.Name+"-"+revision
}

// Materialize makes the SandboxTemplate that holds a revision of a set, owned by
// it: everything that the revision is the hash of. It is the caller's to keep and
// change.
func Materialize(set *v1alpha1.SandboxSet, revision string, resolved *Resolved) *v1alpha1.SandboxTemplate {
	spec := set.Spec.DeepCopy()
	materialized := &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            RevisionName(set, revision),
			Labels:          map[string]string{v1alpha1.LabelSandboxPool: set.Name, v1alpha1.LabelTemplateHash: revision},
			OwnerReferences: []metav1.OwnerReference{ownedBySet(set)},
		},
		Spec: v1alpha1.SandboxTemplateSpec{
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template:             resolved.Template.DeepCopy(),
				VolumeClaimTemplates: spec.VolumeClaimTemplates,
			},
			PauseStrategy:      spec.PauseStrategy,
			PersistentContents: spec.PersistentContents,
			Runtimes:           spec.Runtimes,
			Service:            resolved.service(),
		},
	}
	setLabelTemplate(materialized, TemplateOf(set))
	return materialized
}

// AtRevision is a set as it was at the revision that a template made by
// Materialize holds, for NewSandbox to make more of its sandboxes. It shares its
// parts with both and is not to be changed.
func AtRevision(set *v1alpha1.SandboxSet, materialized *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxSet, *Resolved) {
	then := *set
	then.Spec.VolumeClaimTemplates = materialized.Spec.VolumeClaimTemplates
	then.Spec.PauseStrategy = materialized.Spec.PauseStrategy
	then.Spec.PersistentContents = materialized.Spec.PersistentContents
	then.Spec.Runtimes = materialized.Spec.Runtimes
	if name := materialized.Labels[v1alpha1.LabelSandboxTemplate]; name != "" {
		// Its pods are not those of another template that the set refers to by now.
		then.Spec.Template, then.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: name}
	}
	return &then, &Resolved{Template: materialized.Spec.Template, Service: materialized.Spec.Service}
}
