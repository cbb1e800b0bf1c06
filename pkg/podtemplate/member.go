// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// NewMember makes a sandbox like those that a set makes now for its pool, by NewSandbox:
// of the revision that the status of the set names. It is made from the spec of the set, if that
// still has the revision, in its own text or in that of the SandboxTemplate that holds the
// revision (see WithTextOf). If the spec has another revision by now, or cannot be resolved, it is
// made from that SandboxTemplate. It is the caller's to keep and change.
//
// If there is no such template it returns ErrRevision, or the error of ResolveSet.
func (c *Cache) NewMember(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup) (*v1alpha1.Sandbox, error) {
	revision := set.Status.UpdateRevision
	resolved, unresolved := c.ResolveSet(ctx, set, lookup)
	current := ""
	if unresolved == nil {
		var err error
		if current, err = c.SetRevision(set, resolved); err != nil {
			return nil, err
		}
		if current == revision {
			return NewSandbox(set, revision, resolved)
		}
	}
	held, err := c.Holder(ctx, set, lookup)
	if err != nil {
		return nil, err
	}
	if held != nil && unresolved == nil {
		if then, found, same := c.WithTextOf(set, current, resolved, held); same {
			return NewSandbox(then, revision, found)
		}
	}
	if held != nil && set.Spec.Template == nil {
		then, resolved := AtRevision(set, held)
		return NewSandbox(then, revision, resolved)
	}
	return nil, cmp.Or(unresolved, fmt.Errorf("SandboxSet %s/%s: %w", set.Namespace, set.Name, ErrRevision))
}

// Holder returns the SandboxTemplate that holds the revision which the status of a set
// names, or nil: there never was one, or a user took it away or changed it.
func (c *Cache) Holder(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup) (*v1alpha1.SandboxTemplate, error) {
	name := HolderOf(&set.Status)
	if name == "" {
		return nil, nil
	}
	template, err := lookup.SandboxTemplate(ctx, set.Namespace, name)
	if err != nil || template == nil || !metav1.IsControlledBy(template, set) || !c.HoldsRevision(template, set.Status.UpdateRevision) {
		return nil, err
	}
	return template, nil
}
