// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Resolved is a pod template at the end of all references, patched.
type Resolved struct {
	// Template is the pod template. It is shared and not to be changed.
	Template *runtime.RawExtension
	// Chain are the names of the templates on the way, the one that is referred to
	// first; empty for an inline template.
	Chain []string
	// VolumeClaimTemplates are those of the SandboxTemplates of the chain. If several have the
	// same name, the first one is used. They are shared and not to be changed. See WithVolumes.
	VolumeClaimTemplates []runtime.RawExtension
	// Service is what the first SandboxTemplate of the chain says of services. It is
	// shared and not to be changed.
	Service *bool
	// MaxFreshSandboxes is what it says of that; it is shared and not to be changed.
	MaxFreshSandboxes *int32
	// NetworkManaged says that the first SandboxTemplate of the chain has a
	// NetworkPolicy, which selects pods by the name of that template.
	NetworkManaged bool
	// holder is the name of the SandboxTemplate that it was read from as a revision; empty
	// if it was resolved.
	holder string
}

// service is a copy of what is said of services.
func (r *Resolved) service() *bool {
	if r == nil || r.Service == nil {
		return nil
	}
	return new(*r.Service)
}

// Inline is a pod template that stands where it is used, without references.
func Inline(template *runtime.RawExtension) *Resolved { return &Resolved{Template: template} }

// ResolveSet finds the pod template of a set's sandboxes, with the set's patch.
// lookup may be nil for a set that refers to none.
func ResolveSet(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup) (*Resolved, error) {
	return resolveSet(ctx, set, lookup, finish)
}

// ResolveTemplate finds the pod template at the end of a SandboxTemplate.
func ResolveTemplate(ctx context.Context, template *v1alpha1.SandboxTemplate, lookup Lookup) (*Resolved, error) {
	w := walk{lookup: lookup, namespace: template.Namespace}
	w.enter(v1alpha1.TemplateKindSandboxTemplate, template.Name)
	w.begin(template)
	resolved, err := resolve(ctx, &w, template, nil, finish)
	return resolved, about(err, v1alpha1.TemplateKindSandboxTemplate, template)
}

// finisher makes the pod template out of what stands at the end of a chain. A
// Cache has one that remembers.
type finisher func(ctx context.Context, e end, patch *runtime.RawExtension) (*runtime.RawExtension, error)

// finish is the finisher that remembers nothing.
func finish(ctx context.Context, e end, patch *runtime.RawExtension) (*runtime.RawExtension, error) {
	return e.finish(ctx, patch)
}

func resolveSet(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup, finish finisher) (*Resolved, error) {
	resolved, err := resolveEmbedded(ctx, set.Namespace, &set.Spec.EmbeddedSandboxTemplate, set.Spec.Patch, lookup, finish)
	return resolved, about(err, "SandboxSet", set)
}

// about says in an error what it is about.
func about(err error, kind string, object metav1.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
}

func resolveEmbedded(
	ctx context.Context, namespace string, embedded *v1alpha1.EmbeddedSandboxTemplate,
	patch *runtime.RawExtension, lookup Lookup, finish finisher,
) (*Resolved, error) {
	if embedded.Template != nil { // a patch is for references only
		return Inline(embedded.Template), nil
	}
	// The walk needs only the reference and the volumes of the object that it begins with.
	from := &v1alpha1.SandboxTemplate{}
	from.Spec.TemplateRef, from.Spec.VolumeClaimTemplates = embedded.TemplateRef, embedded.VolumeClaimTemplates
	return resolve(ctx, &walk{lookup: lookup, namespace: namespace}, from, patch, finish)
}

func resolve(
	ctx context.Context, w *walk, from *v1alpha1.SandboxTemplate,
	patch *runtime.RawExtension, finish finisher,
) (*Resolved, error) {
	e, err := w.follow(ctx, from)
	if err != nil {
		return nil, err
	}
	if err := checkVolumes(withMoreVolumes(from.Spec.VolumeClaimTemplates, w.volumes)); err != nil {
		return nil, w.blame(err)
	}
	template, err := finish(ctx, e, patch)
	if err != nil {
		return nil, w.blame(err)
	}
	return &Resolved{
		Template: template, VolumeClaimTemplates: w.volumes, Chain: w.names(),
		Service: w.service, MaxFreshSandboxes: w.maxFresh, NetworkManaged: w.networkManaged,
	}, nil
}

// cacheSize is how many pod templates a Cache keeps. One is a few kilobytes, at
// most 256 KiB, and shared by all who use it.
const cacheSize = 256

// heldSize is for how many SandboxTemplates a Cache remembers whether they hold their
// revision. That takes a hundred bytes each.
const heldSize = 8192

// revisionsSize is how many revisions of sets a Cache remembers. One takes two hundred bytes.
const revisionsSize = 4096

// Cache resolves and remembers what it took a patch to make. References are
// followed each time, which is cheap. It is safe for concurrent use.
type Cache struct {
	done         *lru.Cache
	held         *lru.Cache // of bool, by heldKey
	sameRevision *lru.Cache // of bool, by pairs of revisions: see WithTextOf
	revisions    *lru.Cache // of string, by revisionKey
	// bringsRuntime has for pod templates, by their sums, whether they bring an agent-runtime.
	bringsRuntime *lru.Cache
	patches       atomic.Int64
}

// NewCache returns an empty Cache.
func NewCache() *Cache {
	return &Cache{
		done: lru.New(cacheSize), held: lru.New(heldSize), sameRevision: lru.New(sameRevisionSize), revisions: lru.New(revisionsSize),
		bringsRuntime: lru.New(revisionsSize),
	}
}

// Patches is how many patches have been applied so far, for tests and benchmarks.
func (c *Cache) Patches() int64 { return c.patches.Load() }

// ResolveSet is like the function of that name.
func (c *Cache) ResolveSet(ctx context.Context, set *v1alpha1.SandboxSet, lookup Lookup) (*Resolved, error) {
	return resolveSet(ctx, set, lookup, c.finish)
}

// ResolveSandbox finds the pod template of a sandbox. That of a pool comes from the
// SandboxTemplate that holds its revision, or not at all: see ErrRevision.
func (c *Cache) ResolveSandbox(ctx context.Context, sandbox *v1alpha1.Sandbox, lookup Lookup) (*Resolved, error) {
	switch {
	case sandbox.Spec.Template != nil:
	case RefersToRevision(sandbox):
		lookup = heldLookup{Lookup: lookup, cache: c, sandbox: sandbox}
	case v1alpha1.PoolOf(sandbox) != nil:
		return nil, about(ErrRevision, "Sandbox", sandbox)
	}
	resolved, err := resolveEmbedded(ctx, sandbox.Namespace, &sandbox.Spec.EmbeddedSandboxTemplate, nil, lookup, c.finish)
	return resolved, about(err, "Sandbox", sandbox)
}

// Whole returns a sandbox with the pod template and volumes in it that it refers to. It is not to be changed.
// Errors are those of ResolveSandbox.
func (c *Cache) Whole(ctx context.Context, sandbox *v1alpha1.Sandbox, lookup Lookup) (*v1alpha1.Sandbox, error) {
	if sandbox.Spec.Template != nil {
		return sandbox, nil
	}
	resolved, err := c.ResolveSandbox(ctx, sandbox, lookup)
	if err != nil {
		return nil, err
	}
	whole := *sandbox
	whole.Spec.Template, whole.Spec.VolumeClaimTemplates = resolved.Template, resolved.WithVolumes(sandbox.Spec.VolumeClaimTemplates)
	return &whole, nil
}

// heldLookup finds no SandboxTemplate but one that holds the revision of a sandbox.
type heldLookup struct {
	Lookup
	cache   *Cache
	sandbox *v1alpha1.Sandbox
}

// SandboxTemplate implements Lookup.
func (l heldLookup) SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error) {
	template, err := l.Lookup.SandboxTemplate(ctx, namespace, name)
	if err != nil || template == nil {
		return nil, err
	}
	revision := l.sandbox.Labels[v1alpha1.LabelTemplateHash]
	if isShort(revision) && !mayHoldShort(template, l.sandbox) || !l.cache.hasContent(template, revision) {
		return nil, ErrRevision
	}
	// Of what decides on the networks of other pods its hash says nothing.
	held := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: template.Namespace, Name: template.Name, UID: template.UID, ResourceVersion: template.ResourceVersion,
	}}
	held.Spec.Template, held.Spec.Service = template.Spec.Template, template.Spec.Service
	return held, nil
}

// heldKey is a state of a template and a revision that it may hold.
type heldKey struct {
	uid               types.UID
	version, revision string
}

// HoldsRevision is like the function of that name, and hashes each state of a template
// once.
func (c *Cache) HoldsRevision(template *v1alpha1.SandboxTemplate, revision string) bool {
	return !isShort(revision) && c.hasContent(template, revision)
}

func (c *Cache) hasContent(template *v1alpha1.SandboxTemplate, revision string) bool {
	if template.ResourceVersion == "" { // it cannot be distinguished from what it becomes
		return hasContent(template, revision)
	}
	key := heldKey{template.UID, template.ResourceVersion, revision}
	if known, ok := c.held.Get(key); ok {
		return known.(bool)
	}
	holds := hasContent(template, revision)
	c.held.Add(key, holds)
	return holds
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

func (c *Cache) finish(ctx context.Context, e end, patch *runtime.RawExtension) (*runtime.RawExtension, error) {
	if e.inline != nil && patch == nil && !e.publicDNS {
		return e.inline, nil
	}
	key := cacheKey{kind: e.kind, uid: e.uid, version: e.version, publicDNS: e.publicDNS}
	if patch != nil {
		raw, err := patch.MarshalJSON()
		if err != nil {
			return e.finish(ctx, patch)
		}
		key.patch = sha256.Sum256(raw)
	}
	// What has no version cannot be distinguished from what it becomes.
	known := e.version != ""
	if known {
		if found, ok := c.done.Get(key); ok {
			result := found.(cached)
			return result.template, result.err
		}
	}
	if patch != nil {
		c.patches.Add(1)
	}
	template, err := e.finish(ctx, patch)
	if known && ctx.Err() == nil { // or that may be the error
		c.done.Add(key, cached{template: template, err: err})
	}
	return template, err
}
