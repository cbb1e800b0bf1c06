// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/index"
)

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
