// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// indexes are what the controller looks up in the manager's cache. What is found is
// shared and not to be changed.
type indexes struct {
	// sandboxes finds those whose controller, a set or a claim, has a UID.
	sandboxes interface {
		ControlledBy(types.UID) ([]*v1alpha1.Sandbox, error)
	}
	// holders finds the SandboxTemplates whose controller has a UID: those that hold
	// the revisions of a set.
	holders interface {
		ControlledBy(types.UID) ([]*v1alpha1.SandboxTemplate, error)
	}
	// setUsers and sandboxUsers find what refers to a template, straight or through
	// other templates.
	setUsers, sandboxUsers templateUsers
	// burstSets finds the sets with a burst that are of a name or refer to the
	// SandboxTemplate of that name.
	burstSets interface {
		ByName(namespace, name string) ([]*v1alpha1.SandboxSet, error)
	}
	// recycled finds the sandboxes that are being recycled and came from the set of a name.
	recycled interface {
		OfPool(namespace, name string) ([]*v1alpha1.Sandbox, error)
	}
	// nodes finds the sandboxes of pools on a node.
	nodes interface {
		OnNode(name string) ([]*v1alpha1.Sandbox, error)
	}
}

// pooled returns the sandboxes in the pool of a set. An owner reference with the set's UID but
// another kind or name does not count; any writer of sandboxes can set one.
func (c *indexes) pooled(set *v1alpha1.SandboxSet) ([]*v1alpha1.Sandbox, error) {
	return controlled(c.sandboxes.ControlledBy, "SandboxSet", set)
}

// boundTo returns the sandboxes that are bound to a claim.
func (c *indexes) boundTo(claim *v1alpha1.SandboxClaim) ([]*v1alpha1.Sandbox, error) {
	return controlled(c.sandboxes.ControlledBy, "SandboxClaim", claim)
}

// revisionsOf returns the SandboxTemplates that a set controls.
func (c *indexes) revisionsOf(set *v1alpha1.SandboxSet) ([]*v1alpha1.SandboxTemplate, error) {
	return controlled(c.holders.ControlledBy, "SandboxSet", set)
}

// controlled returns those of the objects found by the UID of an owner of our group and a
// kind that name it as their controller in full.
func controlled[T client.Object](find func(types.UID) ([]T, error), kind string, owner client.Object) ([]T, error) {
	found, err := find(owner.GetUID())
	return slices.DeleteFunc(found, func(object T) bool {
		return !v1alpha1.ControlledBy(object, kind, owner)
	}), err
}

type templateUsers interface {
	UsersOf(kind, namespace, name string) ([]client.Object, error)
}

// isUsed reports whether a set or a sandbox refers to a SandboxTemplate.
func (c *indexes) isUsed(template *v1alpha1.SandboxTemplate) (bool, error) {
	for _, users := range []templateUsers{c.setUsers, c.sandboxUsers} {
		found, err := users.UsersOf(v1alpha1.TemplateKindSandboxTemplate, template.Namespace, template.Name)
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return false, nil
}
