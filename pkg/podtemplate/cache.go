// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"crypto/sha256"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// cacheSize is how many pod templates a Cache keeps. One is a few kilobytes, at
// most 256 KiB, and shared by all who use it.
const cacheSize = 256

// Cache resolves and remembers what it took a patch to make. References are
// followed each time, which is cheap. It is safe for concurrent use.
type Cache struct {
	done    *lru.Cache
	patches atomic.Int64
}

// patched counts for all Caches of the process.
var patched atomic.Int64

// Patched is how many patches all Caches of this process have applied so far.
func Patched() int64 { return patched.Load() }

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{done: lru.New(cacheSize)} }

// Patches is how many patches have been applied so far, for tests and benchmarks.
func (c *Cache) Patches() int64 { return c.patches.Load() }

// ResolveSet is like the function of that name.
func (c *Cache) ResolveSet(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup) (*Resolved, error) {
	return resolveSet(ctx, set, lookup, c.finish)
}

// ResolveSandbox is like the function of that name.
func (c *Cache) ResolveSandbox(ctx context.Context, sandbox *v1alpha1.Sandbox, lookup Lookup) (*Resolved, error) {
	return resolveSandbox(ctx, sandbox, lookup, c.finish)
}

// cacheKey is all that a pod template is made from: nothing else of a chain gets
// into it.
type cacheKey struct {
	kind    string
	uid     types.UID
	version string
	// publicDNS is of the beginning of the chain.
	publicDNS bool
	// patch is the sum of the patch, or zero where there is none.
	patch [sha256.Size]byte
}

type cached struct {
	template *runtime.RawExtension
	err      error
}

func (c *Cache) finish(e end, patch *runtime.RawExtension) (*runtime.RawExtension, error) {
	if e.inline != nil && patch == nil && !e.publicDNS {
		return e.inline, nil
	}
	key := cacheKey{kind: e.kind, uid: e.uid, version: e.version, publicDNS: e.publicDNS}
	if patch != nil {
		raw, err := patch.MarshalJSON()
		if err != nil {
			return e.finish(patch)
		}
		key.patch = sha256.Sum256(raw)
	}
	// What has no version cannot be told from what it becomes.
	known := e.version != ""
	if known {
		if found, ok := c.done.Get(key); ok {
			result := found.(cached)
			return result.template, result.err
		}
	}
	if patch != nil {
		c.patches.Add(1)
		patched.Add(1)
	}
	template, err := e.finish(patch)
	if known {
		c.done.Add(key, cached{template: template, err: err})
	}
	return template, err
}
