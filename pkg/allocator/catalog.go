// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// catalog knows the sets there are and, of each SandboxTemplate, which of them use
// it, so that a claim finds its pools without a list. Its one writer is the watch
// of sets; a list that somebody makes meanwhile may bring it forward, and never
// back. What it hands out is shared and not to be changed.
type catalog struct {
	mu   sync.RWMutex
	sets map[poolindex.Pool]*v1alpha1.SandboxSet
	// users are the sets that refer to a template, those without a patch first.
	users map[templateKey][]*v1alpha1.SandboxSet
	// seen is the newest resourceVersion that the watch has told of; 0 before it
	// has told of anything.
	seen uint64
}

type templateKey struct{ namespace, name string }

// setChange is a set before and after a change; nil where there was, or is, none.
type setChange struct{ before, after *v1alpha1.SandboxSet }

// set returns the set of a name, or nil.
func (c *catalog) set(namespace, name string) *v1alpha1.SandboxSet {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sets[poolindex.Pool{Namespace: namespace, Name: name}]
}

// using returns the sets that refer to a SandboxTemplate, in the order in which
// claims prefer them as long as they have the same stock.
func (c *catalog) using(namespace, template string) []*v1alpha1.SandboxSet {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.users[templateKey{namespace, template}]
}

// replicas returns, of every set there is, how many sandboxes it is to hold.
func (c *catalog) replicas() map[poolindex.Pool]int32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make(map[poolindex.Pool]int32, len(c.sets))
	for p, set := range c.sets {
		all[p] = ptr.Deref(set.Spec.Replicas, 0)
	}
	return all
}

// synced says whether the watch has told of all sets there were.
func (c *catalog) synced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.seen > 0
}

// replace takes in a list of all sets by the watch, and returns the pools of those
// that are gone.
func (c *catalog) replace(all []*v1alpha1.SandboxSet, resourceVersion uint64) []poolindex.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.sets
	c.sets, c.users = make(map[poolindex.Pool]*v1alpha1.SandboxSet, len(all)), nil
	for _, set := range all {
		c.put(set)
	}
	c.seen = max(c.seen, resourceVersion, 1)
	var gone []poolindex.Pool
	for p := range before {
		if c.sets[p] == nil {
			gone = append(gone, p)
		}
	}
	return gone
}

// listed takes in the sets of one namespace from a list that did not come by the
// watch. If the watch has seen something newer it has seen all that the list has,
// and perhaps that a set is gone, which an old list must not undo. It returns what
// the list changed: the watch will tell of that later, and then it is no change.
func (c *catalog) listed(namespace string, all []*v1alpha1.SandboxSet, resourceVersion uint64) []setChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen > resourceVersion {
		return nil
	}
	var changes []setChange
	there := make(map[poolindex.Pool]bool, len(all))
	for _, set := range all {
		there[poolOf(set)] = true
		if before := c.sets[poolOf(set)]; before == nil || before.UID != set.UID || before.ResourceVersion != set.ResourceVersion {
			changes = append(changes, setChange{before, set})
		}
		c.put(set)
	}
	for p, set := range c.sets {
		if p.Namespace == namespace && !there[p] {
			changes = append(changes, setChange{before: set})
			c.remove(set)
		}
	}
	return changes
}

// read takes in a set that was read by its name, unless the watch has seen something
// newer, and returns what that changed.
func (c *catalog) read(set *v1alpha1.SandboxSet) []setChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.sets[poolOf(set)]
	if c.seen > versionOf(set) || before != nil && versionOf(before) >= versionOf(set) {
		return nil
	}
	c.put(set)
	return []setChange{{before, set}}
}

// change takes in the current state of a set, and returns the one before.
func (c *catalog) change(set *v1alpha1.SandboxSet) *v1alpha1.SandboxSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = max(c.seen, versionOf(set))
	before := c.sets[poolOf(set)]
	if before != nil && versionOf(before) > versionOf(set) && before.UID == set.UID {
		return before // a list was ahead of the watch
	}
	c.put(set)
	return before
}

// delete takes in that a set is gone.
func (c *catalog) delete(set *v1alpha1.SandboxSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = max(c.seen, versionOf(set))
	if there := c.sets[poolOf(set)]; there != nil && there.UID == set.UID {
		c.remove(there)
	}
}

// put and remove copy the list of a template's sets rather than change it: others
// read it meanwhile. c.mu is held.
func (c *catalog) put(set *v1alpha1.SandboxSet) {
	if before := c.sets[poolOf(set)]; before != nil {
		c.remove(before)
	}
	if c.sets == nil {
		c.sets = map[poolindex.Pool]*v1alpha1.SandboxSet{}
	}
	c.sets[poolOf(set)] = set
	template := v1alpha1.SandboxTemplateOf(set)
	if template == "" {
		return
	}
	if c.users == nil {
		c.users = map[templateKey][]*v1alpha1.SandboxSet{}
	}
	key := templateKey{set.Namespace, template}
	at, _ := slices.BinarySearchFunc(c.users[key], set, preferred)
	c.users[key] = slices.Insert(slices.Clone(c.users[key]), at, set)
}

func (c *catalog) remove(set *v1alpha1.SandboxSet) {
	delete(c.sets, poolOf(set))
	key := templateKey{set.Namespace, v1alpha1.SandboxTemplateOf(set)}
	rest := slices.DeleteFunc(slices.Clone(c.users[key]), func(other *v1alpha1.SandboxSet) bool { return other.Name == set.Name })
	if len(rest) == 0 {
		delete(c.users, key)
		return
	}
	c.users[key] = rest
}

// preferred orders the sets of one template but for their stock.
func preferred(a, b *v1alpha1.SandboxSet) int {
	return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(a.Name, b.Name))
}

// rankOf is lower for a set whose sandboxes are what the template says.
func rankOf(set *v1alpha1.SandboxSet) int {
	if set.Spec.Patch != nil && set.Spec.Template == nil {
		return 1
	}
	return 0
}

func poolOf(set *v1alpha1.SandboxSet) poolindex.Pool {
	return poolindex.Pool{Namespace: set.Namespace, Name: set.Name}
}

// holds is how many sandboxes a set may come to have at once, for a claim that it grows
// for or for one that it does not.
func holds(set *v1alpha1.SandboxSet, grows bool) int32 {
	replicas := ptr.Deref(set.Spec.Replicas, 0)
	if grows && set.DeletionTimestamp == nil {
		return replicas + ptr.Deref(set.Spec.ScaleStrategy.Burst, 0)
	}
	return replicas
}

// versionOf is a set's resourceVersion as etcd counts it; 0 if it has none.
func versionOf(set *v1alpha1.SandboxSet) uint64 {
	v, err := strconv.ParseUint(set.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
