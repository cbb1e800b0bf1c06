// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A revision is the hash of text: that is what earlier versions made, and it takes no
// decoding. What decodes to the same as a revision that is held already is that revision, so
// a set is read in the text of that one.

// alikeSize is for how many pairs of revisions a Cache remembers whether they are the same.
const alikeSize = 8192

// AsHeld returns a set and its pod template, whose revision is revision, in the text of a
// SandboxTemplate that holds an earlier revision of the set. It reports false where that does
// not decode to the same. What it returns shares its parts with all three, and is not to be
// changed.
func (c *Cache) AsHeld(
	set *v1alpha1.SandboxSet, revision string, resolved *Resolved, held *v1alpha1.SandboxTemplate,
) (*v1alpha1.SandboxSet, *Resolved, bool) {
	heldRevision := held.Labels[v1alpha1.LabelTemplateHash]
	if !c.HoldsRevision(held, heldRevision) {
		return nil, nil, false
	}
	then, found := inTextOf(set, resolved, held)
	pair := [2]string{revision, heldRevision}
	same, known := c.alike.Get(pair)
	if !known {
		same = sameTexts(set, resolved, held) && isRevision(then, found, heldRevision)
		c.alike.Add(pair, same)
	}
	return then, found, same.(bool)
}

func inTextOf(set *v1alpha1.SandboxSet, resolved *Resolved, held *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxSet, *Resolved) {
	then, found := *set, *resolved
	then.Spec.VolumeClaimTemplates = held.Spec.VolumeClaimTemplates
	if set.Spec.Template != nil {
		then.Spec.Template = held.Spec.Template
	}
	found.Template = held.Spec.Template
	return &then, &found
}

func sameTexts(set *v1alpha1.SandboxSet, resolved *Resolved, held *v1alpha1.SandboxTemplate) bool {
	return v1alpha1.SamePodTemplate(resolved.Template, held.Spec.Template) &&
		slices.EqualFunc(resolved.WithVolumes(set.Spec.VolumeClaimTemplates), held.Spec.VolumeClaimTemplates, func(a, b runtime.RawExtension) bool {
			return v1alpha1.SameVolumeClaimTemplate(&a, &b)
		})
}

func isRevision(set *v1alpha1.SandboxSet, resolved *Resolved, revision string) bool {
	is, err := SetRevision(set, resolved)
	return err == nil && is == revision
}
