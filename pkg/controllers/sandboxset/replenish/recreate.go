// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// outdatedForRecreate returns the sandboxes that a set with the update type Recreate replaces at once.
func outdatedForRecreate(o *observation, c *poolCounts) []*v1alpha1.Sandbox {
	var outdated []*v1alpha1.Sandbox
	for _, sandbox := range slices.Concat(c.creating, c.available) {
		if podtemplate.RecreateReplaces(o.target.setAtRevision, sandbox, o.target.revision, o.differsOnlyInMetadata.Has) {
			outdated = append(outdated, sandbox)
		}
	}
	slices.SortFunc(outdated, byAge)
	return outdated
}

// maxCompared is for how many pairs of revisions a set remembers whether they differ in
// metadata alone.
const maxCompared = 64

// differingOnlyInMetadata returns the older revisions of the sandboxes in a pool that differ from
// the target in metadata alone. Only for the update type Recreate that matters.
func (c *Controller) differingOnlyInMetadata(o *observation) (sets.Set[string], error) {
	found := sets.New[string]()
	if o.set.Spec.UpdateStrategy.Type != v1alpha1.SetUpdateRecreate || !o.canCreate() {
		return found, nil
	}
	older := sets.New[string]()
	for _, sandbox := range o.pool.sandboxes {
		if revision := revisionOf(sandbox); revision != o.target.revision {
			older.Insert(revision)
		}
	}
	if len(older) == 0 {
		return found, nil
	}
	owned, err := c.indexes.revisionsOf(o.set)
	if err != nil {
		return nil, fmt.Errorf("finding the revisions of SandboxSet %s/%s: %w", o.set.Namespace, o.set.Name, err)
	}
	var target *v1alpha1.SandboxTemplate
	for _, template := range owned {
		revision := template.Labels[v1alpha1.LabelTemplateHash]
		if !older.Has(revision) || !c.revisions.podTemplates.HoldsRevision(template, revision) {
			continue
		}
		pair, key := [2]string{o.target.revision, revision}, client.ObjectKeyFromObject(o.set)
		var same, known bool
		c.states.withState(key, func(s *setState) { same, known = s.revision.compared[pair] })
		if !known {
			if target == nil {
				target = podtemplate.NewHolder(o.target.setAtRevision, o.target.revision, o.target.resolved)
			}
			same = podtemplate.SameButMetadata(target, template)
			c.states.withState(key, func(s *setState) { s.revision.noteCompared(pair, same) })
		}
		if same {
			found.Insert(revision)
		}
	}
	return found, nil
}

// noteCompared remembers whether two revisions differ in metadata alone.
func (m *revisionMemory) noteCompared(pair [2]string, same bool) {
	if m.compared == nil || len(m.compared) >= maxCompared {
		m.compared = map[[2]string]bool{}
	}
	m.compared[pair] = same
}
