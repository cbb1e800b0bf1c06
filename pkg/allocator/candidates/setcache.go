// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// SetCache knows the sets there are and, of each SandboxTemplate, which of them use
// it, so that a claim finds its pools without a list. Its one writer is the watch
// of sets; a list that is made meanwhile may bring it forward, and never back. What it hands out is shared and not to be changed.
type SetCache struct {
	mu sync.RWMutex
	// sets are by namespace and name.
	sets map[string]map[string]*v1alpha1.SandboxSet
	// users are the sets that refer to a template, as claims prefer them.
	users map[types.NamespacedName][]*v1alpha1.SandboxSet
	// seen is the newest resourceVersion that the watch has reported; 0 before it has reported
	// anything.
	seen uint64
}

// SetChange is a set before and after a change; nil where there was, or is, none.
type SetChange struct{ Before, After *v1alpha1.SandboxSet }

// Set implements claims.Sets: the set of a name, or nil.
func (c *SetCache) Set(namespace, name string) *v1alpha1.SandboxSet {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sets[namespace][name]
}

// Using implements claims.Sets: the sets that refer to a SandboxTemplate, in the order in which
// claims prefer them as long as they have the same stock.
func (c *SetCache) Using(namespace, template string) []*v1alpha1.SandboxSet {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.users[types.NamespacedName{Namespace: namespace, Name: template}]
}

// Replicas returns, of every set there is, how many sandboxes it is to hold.
func (c *SetCache) Replicas() map[poolindex.Pool]int32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := map[poolindex.Pool]int32{}
	for _, sets := range c.sets {
		for _, set := range sets {
			all[poolindex.PoolOf(set)] = ptr.Deref(set.Spec.Replicas, 0)
		}
	}
	return all
}

// hasSynced reports whether the watch has listed all sets.
func (c *SetCache) hasSynced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.seen > 0
}

// Replace takes in a list of all sets by the watch, and returns the pools of those
// that are gone.
func (c *SetCache) Replace(all []*v1alpha1.SandboxSet, resourceVersion uint64) []poolindex.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.sets
	c.sets, c.users = nil, nil
	for _, set := range all {
		c.put(set)
	}
	c.seen = max(c.seen, resourceVersion, 1)
	var gone []poolindex.Pool
	for namespace, sets := range before {
		for name, set := range sets {
			if now := c.sets[namespace][name]; now == nil || now.UID != set.UID {
				gone = append(gone, poolindex.PoolOf(set))
			}
		}
	}
	return gone
}

// listed takes in the sets of one namespace from a list that did not come by the
// watch. If the watch has seen something newer it has seen all that the list has,
// and perhaps that a set is gone, which an old list must not undo. It returns what
// the list changed: the watch will report that later, and then it is no change.
func (c *SetCache) listed(namespace string, all []*v1alpha1.SandboxSet, resourceVersion uint64) []SetChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen > resourceVersion {
		return nil
	}
	var changes []SetChange
	there := make(map[string]bool, len(all))
	for _, set := range all {
		there[set.Name] = true
		if before := c.sets[namespace][set.Name]; before == nil || before.UID != set.UID || before.ResourceVersion != set.ResourceVersion {
			changes = append(changes, SetChange{before, set})
		}
		c.put(set)
	}
	for name, set := range c.sets[namespace] {
		if !there[name] {
			changes = append(changes, SetChange{Before: set})
			c.remove(set)
		}
	}
	return changes
}

// read takes in a set that was read by its name, unless the watch has seen something
// newer, and returns what that changed.
func (c *SetCache) read(set *v1alpha1.SandboxSet) []SetChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.sets[set.Namespace][set.Name]
	if c.seen > poolindex.ParseVersion(set.ResourceVersion) || before != nil && poolindex.ParseVersion(before.ResourceVersion) >= poolindex.ParseVersion(set.ResourceVersion) {
		return nil
	}
	c.put(set)
	return []SetChange{{before, set}}
}

// Change takes in the current state of a set, and returns the one before.
func (c *SetCache) Change(set *v1alpha1.SandboxSet) *v1alpha1.SandboxSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = max(c.seen, poolindex.ParseVersion(set.ResourceVersion))
	before := c.sets[set.Namespace][set.Name]
	if before != nil && poolindex.ParseVersion(before.ResourceVersion) > poolindex.ParseVersion(set.ResourceVersion) && before.UID == set.UID {
		return before // a list was ahead of the watch
	}
	c.put(set)
	return before
}

// Delete takes in that a set is gone.
func (c *SetCache) Delete(set *v1alpha1.SandboxSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = max(c.seen, poolindex.ParseVersion(set.ResourceVersion))
	if there := c.sets[set.Namespace][set.Name]; there != nil && there.UID == set.UID {
		c.remove(there)
	}
}

// put and remove copy the list of a template's sets rather than change it: others
// read it meanwhile. c.mu is held.
func (c *SetCache) put(set *v1alpha1.SandboxSet) {
	if before := c.sets[set.Namespace][set.Name]; before != nil {
		c.remove(before)
	}
	if c.sets == nil {
		c.sets = map[string]map[string]*v1alpha1.SandboxSet{}
	}
	if c.sets[set.Namespace] == nil {
		c.sets[set.Namespace] = map[string]*v1alpha1.SandboxSet{}
	}
	c.sets[set.Namespace][set.Name] = set
	template := v1alpha1.SandboxTemplateOf(set)
	if template == "" {
		return
	}
	if c.users == nil {
		c.users = map[types.NamespacedName][]*v1alpha1.SandboxSet{}
	}
	key := types.NamespacedName{Namespace: set.Namespace, Name: template}
	at, _ := slices.BinarySearchFunc(c.users[key], set, claims.ComparePreference)
	c.users[key] = slices.Insert(slices.Clone(c.users[key]), at, set)
}

func (c *SetCache) remove(set *v1alpha1.SandboxSet) {
	delete(c.sets[set.Namespace], set.Name)
	if len(c.sets[set.Namespace]) == 0 {
		delete(c.sets, set.Namespace)
	}
	key := types.NamespacedName{Namespace: set.Namespace, Name: v1alpha1.SandboxTemplateOf(set)}
	rest := slices.DeleteFunc(slices.Clone(c.users[key]), func(other *v1alpha1.SandboxSet) bool { return other.Name == set.Name })
	if len(rest) == 0 {
		delete(c.users, key)
		return
	}
	c.users[key] = rest
}
