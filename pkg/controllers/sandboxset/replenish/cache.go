// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
)

// caches is what the controller looks up in the manager's cache. What is found is
// shared and not to be changed.
type caches struct {
	// sandboxes finds those whose controller, a set or a claim, has a UID.
	sandboxes interface {
		ControlledBy(types.UID) ([]*v1alpha1.Sandbox, error)
	}
	// templates finds the SandboxTemplates whose controller has a UID: those that hold
	// the revisions of a set.
	templates interface {
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
	// nodes finds the sandboxes of pools on a node.
	nodes interface {
		OnNode(name string) ([]*v1alpha1.Sandbox, error)
	}
}

// pooled returns the sandboxes in the pool of a set. What only bears the UID of the set, in
// a reference to another kind or name, is not: anyone who may write sandboxes can do that.
func (c *caches) pooled(set *v1alpha1.SandboxSet) ([]*v1alpha1.Sandbox, error) {
	return controlled(c.sandboxes.ControlledBy, "SandboxSet", set)
}

// boundTo returns the sandboxes that are bound to a claim.
func (c *caches) boundTo(claim *v1alpha1.SandboxClaim) ([]*v1alpha1.Sandbox, error) {
	return controlled(c.sandboxes.ControlledBy, "SandboxClaim", claim)
}

// revisionsOf returns the SandboxTemplates that a set controls.
func (c *caches) revisionsOf(set *v1alpha1.SandboxSet) ([]*v1alpha1.SandboxTemplate, error) {
	return controlled(c.templates.ControlledBy, "SandboxSet", set)
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
func (c *caches) isUsed(template *v1alpha1.SandboxTemplate) (bool, error) {
	for _, users := range []templateUsers{c.setUsers, c.sandboxUsers} {
		found, err := users.UsersOf(v1alpha1.TemplateKindSandboxTemplate, template.Namespace, template.Name)
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return false, nil
}

const burstIndex = "sandlot.io/burst-names"

// burstSets is an index of the sets with a burst in a manager's cache.
type burstSets struct{ sets toolscache.Indexer }

// indexBurstSets adds the index to a cache. Call it before the cache starts.
func indexBurstSets(ctx context.Context, c cache.Cache) (burstSets, error) {
	sets, err := index.Add(ctx, c, &v1alpha1.SandboxSet{}, burstIndex, burstKeys)
	return burstSets{sets}, err
}

// burstKeys is what claims may ask for that a set with a burst may serve.
func burstKeys(object any) ([]string, error) {
	set, ok := object.(*v1alpha1.SandboxSet)
	if !ok {
		return nil, fmt.Errorf("indexing sets with a burst: got a %T", object)
	}
	if claims.Burst(set) == 0 {
		return nil, nil
	}
	keys := namesAskedFor(set)
	for i, name := range keys {
		keys[i] = set.Namespace + "/" + name
	}
	return keys, nil
}

// namesAskedFor are the names by which claims may ask for the sandboxes of a set: its
// own, and then that of the template that it refers to.
func namesAskedFor(set *v1alpha1.SandboxSet) []string {
	names := []string{set.Name}
	if template := v1alpha1.SandboxTemplateOf(set); template != "" && template != set.Name {
		names = append(names, template)
	}
	return names
}

// ByName returns the sets with a burst whose sandboxes claims may ask for by a name.
func (s burstSets) ByName(namespace, name string) ([]*v1alpha1.SandboxSet, error) {
	found, err := s.sets.ByIndex(burstIndex, namespace+"/"+name)
	if err != nil {
		return nil, fmt.Errorf("looking up sets with a burst: %w", err)
	}
	sets := make([]*v1alpha1.SandboxSet, 0, len(found))
	for _, object := range found {
		set, ok := object.(*v1alpha1.SandboxSet)
		if !ok {
			return nil, fmt.Errorf("the cache of sets holds a %T", object)
		}
		sets = append(sets, set)
	}
	return sets, nil
}
