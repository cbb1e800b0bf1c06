// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/apiwarning"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// errNameTaken means that a SandboxTemplate of the name is not the set's.
var errNameTaken = errors.New("the name is taken")

// materialize makes the SandboxTemplate that holds a revision of a set, unless it
// is there. It comes before the sandboxes that refer to it.
func (c *Controller) materialize(
	ctx context.Context, set *v1alpha1.SandboxSet, revision string, resolved *podtemplate.Resolved,
) error {
	name := podtemplate.RevisionName(set, revision)
	held, err := c.revisions.ControlledBy(set.UID)
	if err != nil {
		return err
	}
	for _, template := range held {
		if template.Name == name && template.DeletionTimestamp == nil {
			return c.relabel(ctx, set, template)
		}
	}
	wanted := podtemplate.Materialize(set, revision, resolved)
	asking, doubts := apiwarning.Collect(ctx)
	err = c.client.Create(asking, wanted.DeepCopy())
	switch {
	case err == nil:
		c.accepted.answered(set, revision, doubts.Texts())
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating SandboxTemplate %s/%s: %w", set.Namespace, name, err)
	}
	// Made before, and not in the cache yet, or somebody else's.
	existing := &v1alpha1.SandboxTemplate{}
	key := client.ObjectKey{Namespace: set.Namespace, Name: name}
	if err := c.options.Lookup.Server.Get(ctx, key, existing); err != nil {
		return fmt.Errorf("getting SandboxTemplate %s: %w", key, err)
	}
	switch {
	case metav1.IsControlledBy(existing, set):
		return nil
	case adoptable(existing, wanted):
		return c.adopt(ctx, existing, wanted)
	default:
		return fmt.Errorf("SandboxTemplate %s, which is to hold a revision of SandboxSet %s, is not the set's: %w", key, set.Name, errNameTaken)
	}
}

// relabel makes the SandboxTemplate of a revision name the template that the set
// refers to. That is part of a revision only where it has a NetworkPolicy, so another
// one can have the same revision.
func (c *Controller) relabel(ctx context.Context, set *v1alpha1.SandboxSet, holder *v1alpha1.SandboxTemplate) error {
	want := v1alpha1.TemplateLabel(podtemplate.TemplateOf(set))
	if holder.Labels[v1alpha1.LabelSandboxTemplate] == want {
		return nil
	}
	named := holder.DeepCopy()
	metav1.SetMetaDataLabel(&named.ObjectMeta, v1alpha1.LabelSandboxTemplate, want)
	err := c.client.Patch(ctx, named, client.MergeFrom(holder))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling SandboxTemplate %s/%s: %w", holder.Namespace, holder.Name, err)
	}
	return nil
}

// collect deletes the SandboxTemplates of older revisions that no sandbox of the
// pool refers to any more, nor anything else. Claimed sandboxes do not: a claim
// makes them hold their template themselves.
func (c *Controller) collect(ctx context.Context, o *observation) error {
	held, err := c.revisions.ControlledBy(o.set.UID)
	if err != nil || len(held) <= 1 && (len(held) == 0 || held[0].Name == o.holder) {
		return err
	}
	used := sets.New(o.holder, o.set.Status.CurrentRevision)
	for _, revision := range o.creates {
		used.Insert(podtemplate.RevisionName(o.set, revision))
	}
	for _, sandbox := range o.sandboxes {
		used.Insert(podtemplate.RevisionName(o.set, sandbox.Labels[v1alpha1.LabelTemplateHash]))
		if ref := sandbox.Spec.TemplateRef; ref != nil {
			used.Insert(ref.Name)
		}
	}
	var errs []error
	for _, template := range held {
		if used.Has(template.Name) || template.DeletionTimestamp != nil {
			continue
		}
		// By others than the pool's sandboxes: whoever may write sets or sandboxes here.
		users, err := c.users.UsersOf(v1alpha1.TemplateKindSandboxTemplate, template.Namespace, template.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(users) > 0 {
			continue
		}
		err = c.client.Delete(ctx, template.DeepCopy(), client.Preconditions{UID: new(template.UID)})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting SandboxTemplate %s/%s: %w", template.Namespace, template.Name, err))
		}
	}
	return errors.Join(errs...)
}
