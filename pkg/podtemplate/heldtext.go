// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A revision is a hash of the JSON text of a template, as in earlier versions, and so two texts
// that decode to the same template have different hashes. If a set decodes to the same as a
// revision that a SandboxTemplate holds already, the text of that SandboxTemplate is used in place
// of the set's own, so that the set keeps that revision.

// sameRevisionSize is the number of pairs of revisions for which a Cache remembers whether they are the
// same.
const sameRevisionSize = 8192

// WithTextOf returns a copy of a set and of its resolved template with the text of held, a
// SandboxTemplate that holds an earlier revision of the set. revision is the revision of set and
// resolved. It returns false if held does not decode to the same. The results share memory with
// the arguments and must not be changed.
func (c *Cache) WithTextOf(
	set *v1alpha1.SandboxSet, revision string, resolved *Resolved, held *v1alpha1.SandboxTemplate,
) (*v1alpha1.SandboxSet, *Resolved, bool) {
	heldRevision := held.Labels[v1alpha1.LabelTemplateHash]
	if !c.HoldsRevision(held, heldRevision) {
		return nil, nil, false
	}
	then, found := inTextOf(set, resolved, held)
	pair := [2]string{revision, heldRevision}
	same, known := c.sameRevision.Get(pair)
	if !known {
		same = decodesToSame(set, resolved, held) && isRevision(then, found, heldRevision)
		c.sameRevision.Add(pair, same)
	}
	return then, found, same.(bool)
}

// inTextOf returns copies of a set and its resolved template with the raw templates of held.
func inTextOf(set *v1alpha1.SandboxSet, resolved *Resolved, held *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxSet, *Resolved) {
	then, found := *set, *resolved
	then.Spec.VolumeClaimTemplates = held.Spec.VolumeClaimTemplates
	if set.Spec.Template != nil {
		then.Spec.Template = held.Spec.Template
	}
	found.Template = held.Spec.Template
	return &then, &found
}

// decodesToSame reports whether the templates of a set decode to those of held.
func decodesToSame(set *v1alpha1.SandboxSet, resolved *Resolved, held *v1alpha1.SandboxTemplate) bool {
	return v1alpha1.SamePodTemplate(resolved.Template, held.Spec.Template) &&
		slices.EqualFunc(resolved.WithVolumes(set.Spec.VolumeClaimTemplates), held.Spec.VolumeClaimTemplates, func(a, b runtime.RawExtension) bool {
			return v1alpha1.SameVolumeClaimTemplate(&a, &b)
		})
}

// isRevision reports whether a set and its resolved template have a revision.
func isRevision(set *v1alpha1.SandboxSet, resolved *Resolved, revision string) bool {
	is, err := SetRevision(set, resolved)
	return err == nil && is == revision
}
