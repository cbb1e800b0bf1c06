// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// errMoved means that a candidate is none any more.
var errMoved = errors.New("the sandbox is not available any more")

// noTemplateError means that what a candidate is made from cannot be found, or is not what
// its set is to consist of now, which may change.
type noTemplateError struct {
	// asOf is the count of resumes before it was looked for.
	asOf uint64
}

// Error implements error.
func (noTemplateError) Error() string { return "the template of the sandbox is not there" }

// candidates makes what was taken from the index ready to be bound in one turn of a
// claim. Sandboxes of one pool share their template, so it is looked up once.
type candidates struct {
	templates *templates
	stock     *stock
	claim     *v1alpha1.SandboxClaim
	now       time.Time
	// resolved are the pod templates that candidates refer to, as of which count of
	// resumes; sized are what becomes of their size.
	resolved map[v1alpha1.SandboxTemplateRef]resolvedTemplate
	sized    []sizedRevision
	judged   []judgedRevision
}

type resolvedTemplate struct {
	template *runtime.RawExtension
	asOf     uint64
}

// sizedRevision is what becomes of the candidates of a pool that are of one revision.
type sizedRevision struct {
	pool     poolindex.Pool
	revision string
	// want is the template that says how large they are to be; nil where they stay as
	// they are, and failed is why if it should not be so.
	want   *runtime.RawExtension
	failed error
	// have is the template that raised was last worked out for. Candidates of a revision
	// have the same one, unless a user changed one of them.
	have   *runtime.RawExtension
	raised raised
	// applied is what comes of that with the claim's inplaceUpdate, and refused why the
	// template takes nothing of it.
	applied inplace.Applied
	refused error
	// podMetadata says which of the claim's labels and annotations reach their pods.
	podMetadata *v1alpha1.PodMetadataPolicy
}

// prepare returns a candidate as it is to be bound, errMoved, a noTemplateError, or a
// RefusedError.
func (c *candidates) prepare(ctx context.Context, from poolindex.Candidate) (*plan.Candidate, error) {
	sb, err := c.stock.store.Sandbox(ctx, from.Pool.Namespace, from.Name, from.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, errMoved
	}
	if is, ok := poolindex.Available(sb, c.now); !ok || is.Pool != from.Pool || sizeOf(sb) > maxCandidate {
		return nil, errMoved
	}
	if err := c.checkStale(ctx, from.Pool, sb); err != nil {
		return nil, err
	}
	ready := &plan.Candidate{Sandbox: sb, Template: sb.Spec.Template, Lock: string(uuid.NewUUID())}
	if ready.Template == nil && sb.Spec.TemplateRef != nil {
		if !podtemplate.RefersToRevision(sb) {
			return nil, errMoved // no set made it so, and it tells nothing about its revision
		}
		found, err := c.resolve(ctx, sb)
		if err != nil {
			return nil, err
		}
		if found.template == nil {
			return nil, noTemplateError{found.asOf}
		}
		ready.Template = found.template
	}
	if ready.Template != nil {
		size, err := c.size(ctx, from)
		if err != nil {
			return nil, err
		}
		if err := size.apply(ready, c.templates.sizes, c.claim); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// maxCandidate bounds what of a sandbox users can make large, in bytes. What is larger
// would be too large for a transaction, and would keep claims from the rest of the pool.
const maxCandidate = etcdtxn.MaxBytes / 2

func sizeOf(sb *v1alpha1.Sandbox) int {
	n := 0
	for _, m := range []map[string]string{sb.Labels, sb.Annotations} {
		for key, value := range m {
			n += len(key) + len(value)
		}
	}
	if sb.Spec.Template != nil {
		n += len(sb.Spec.Template.Raw)
	}
	for i := range sb.Spec.VolumeClaimTemplates {
		n += len(sb.Spec.VolumeClaimTemplates[i].Raw)
	}
	return n
}

// resolve looks for the pod template that a sandbox refers to; nil if it is not
// there.
func (c *candidates) resolve(ctx context.Context, sb *v1alpha1.Sandbox) (resolvedTemplate, error) {
	ref, asOf := *sb.Spec.TemplateRef, c.stock.index.Resumes()
	if known, ok := c.resolved[ref]; ok && (known.template != nil || known.asOf == asOf) {
		return known, nil
	}
	found := resolvedTemplate{asOf: asOf}
	resolved, err := c.templates.cache.ResolveSandbox(ctx, sb, c.stock.store)
	switch {
	case err == nil:
		found.template = resolved.Template
	case isAboutTemplates(err):
		found.template = c.rederive(ctx, sb)
	default:
		return found, err
	}
	if err := ctx.Err(); err != nil {
		return found, err // it may be the reason
	}
	if c.resolved == nil {
		c.resolved = map[v1alpha1.SandboxTemplateRef]resolvedTemplate{}
	}
	c.resolved[ref] = found
	return found, nil
}

// rederive returns the pod template of a sandbox whose set's revision is not stored
// any more, or something else in its place, if it is what comes out of the set now; nil
// otherwise.
func (c *candidates) rederive(ctx context.Context, sb *v1alpha1.Sandbox) *runtime.RawExtension {
	owner := v1alpha1.PoolOf(sb)
	if owner == nil {
		return nil
	}
	set := c.stock.sets.Set(sb.Namespace, owner.Name)
	if set == nil || set.UID != owner.UID {
		return nil
	}
	resolved, err := c.templates.cache.ResolveSet(ctx, set, c.templates.late)
	if err != nil {
		return nil // also if it cannot be read: the candidate comes back
	}
	if revision, err := podtemplate.SetRevision(set, resolved); err != nil || revision != sb.Labels[v1alpha1.LabelTemplateHash] {
		return nil
	}
	return resolved.Template
}

// size finds out once in a turn what becomes of the size and metadata of the candidates
// that are like one. The result is good until the next call.
func (c *candidates) size(ctx context.Context, from poolindex.Candidate) (*sizedRevision, error) {
	at := slices.IndexFunc(c.sized, func(s sizedRevision) bool { return s.pool == from.Pool && s.revision == from.Revision })
	if at >= 0 {
		return &c.sized[at], nil
	}
	s := sizedRevision{pool: from.Pool, revision: from.Revision}
	if set := c.smallerSet(from); set != nil {
		want, err := c.unpatched(ctx, set)
		switch {
		case err == nil:
			s.want = want
		case isAboutTemplates(err), errors.Is(err, errNoAnswer):
			s.failed = err // not as large as it might be, but there
		default:
			return nil, err
		}
	}
	s.podMetadata = &v1alpha1.PodMetadataPolicy{} // it brings nothing, so nothing is let through
	if bringsPodMetadata(c.claim) {
		var err error
		if s.podMetadata, err = c.podMetadataFor(ctx, from); err != nil {
			return nil, err
		}
	}
	c.sized = append(c.sized, s)
	return &c.sized[len(c.sized)-1], nil
}

// podMetadataFor returns which of the claim's labels and annotations reach the pod of a
// candidate. Those of a set that is gone serve no claim, so none do.
func (c *candidates) podMetadataFor(ctx context.Context, from poolindex.Candidate) (*v1alpha1.PodMetadataPolicy, error) {
	set := c.stock.sets.Set(from.Pool.Namespace, from.Pool.Name)
	if set == nil || string(set.UID) != from.Pool.UID {
		return &v1alpha1.PodMetadataPolicy{}, nil
	}
	return c.templates.podMetadataOf(ctx, set, c.templates.late)
}

// apply sets the template that a candidate is bound with: raised to what it is to have,
// and with the claim's inplaceUpdate. Errors are those of inPlace.
func (s *sizedRevision) apply(ready *plan.Candidate, sizes *sizes, claim *v1alpha1.SandboxClaim) error {
	ready.PodMetadata = s.podMetadata
	if s.want == nil && claim.Spec.InplaceUpdate == nil {
		ready.ResizeFailed = s.failed
		return nil
	}
	if s.have == nil || !bytes.Equal(s.have.Raw, ready.Template.Raw) {
		s.have, s.raised = ready.Template, raised{template: ready.Template, failed: s.failed}
		if s.want != nil {
			s.raised = sizes.raise(ready.Template, s.want)
		}
		s.applied, s.refused = inPlace(s.raised.template, claim)
	}
	if s.refused != nil {
		return s.refused
	}
	ready.Resize, ready.ResizeFailed = s.raised.changed, s.raised.failed
	ready.Template, ready.InPlace = s.applied.Template, s.applied.Goal
	if err := s.applied.Rejected.ToAggregate(); err != nil {
		ready.ResizeFailed = err
	}
	return nil
}

// unpatched is the template that a set refers to, without the set's patch.
func (c *candidates) unpatched(ctx context.Context, set *v1alpha1.SandboxSet) (*runtime.RawExtension, error) {
	if err := refusedTemplate(set); err != nil {
		return nil, err // the pool goes on with an older one, and so do claims
	}
	without := *set
	without.Spec.Patch = nil
	resolved, err := c.templates.cache.ResolveSet(ctx, &without, c.templates.late)
	if err != nil {
		return nil, err
	}
	return resolved.Template, nil
}

// smallerSet returns the set of a candidate's pool if the claim asks for the template
// that the set refers to, and the candidate may be smaller than that: because of the
// set's patch, or because it was made from what the set was before.
func (c *candidates) smallerSet(from poolindex.Candidate) *v1alpha1.SandboxSet {
	set := c.stock.sets.Set(from.Pool.Namespace, from.Pool.Name)
	if set == nil || string(set.UID) != from.Pool.UID {
		return nil
	}
	asked, byRef := v1alpha1.AskedOf(c.claim)
	if v1alpha1.SandboxTemplateOf(set) != asked || !byRef && c.stock.sets.Set(c.claim.Namespace, asked) != nil {
		return nil
	}
	if !outdated(set, from.Revision) && (set.Spec.Patch == nil || !c.templates.sizes.patched(set)) {
		return nil
	}
	return set
}

// outdated reports whether a sandbox of a revision may have been made from something
// else than what the set is now.
func outdated(set *v1alpha1.SandboxSet, revision string) bool {
	status := &set.Status
	return status.UpdateRevision != "" &&
		(status.UpdateRevision != revision || status.ObservedGeneration != set.Generation)
}

// sizesKept is how many raised templates, and how many patches, are remembered.
const sizesKept = 256

// sizes remembers what it takes reading to know about the size of sandboxes.
type sizes struct {
	// raises are by what they were made from; patches says of sets at a generation
	// whether their patch is about size.
	raises, patches *lru.Cache
}

// raised is a template raised to another one.
type raised struct {
	template *runtime.RawExtension
	changed  bool
	failed   error
}

type sums struct{ have, want [sha256.Size]byte }

type setState struct {
	uid        types.UID
	generation int64
}

func newSizes() *sizes {
	return &sizes{raises: lru.New(sizesKept), patches: lru.New(sizesKept)}
}

// raise returns a template raised to another one.
func (s *sizes) raise(have, want *runtime.RawExtension) raised {
	key := sums{sha256.Sum256(have.Raw), sha256.Sum256(want.Raw)}
	known, ok := s.raises.Get(key)
	if !ok {
		template, changed, err := inplace.Raise(have, want)
		if !changed {
			template = nil // nothing is kept of one that stays as it is
		}
		known = raised{template: template, changed: changed, failed: err}
		s.raises.Add(key, known)
	}
	r := known.(raised)
	if !r.changed {
		r.template = have
	}
	return r
}

// patched reports whether a set's patch may have made its sandboxes smaller.
func (s *sizes) patched(set *v1alpha1.SandboxSet) bool {
	key := setState{set.UID, set.Generation}
	known, ok := s.patches.Get(key)
	if !ok {
		known = inplace.PatchesResources(set.Spec.Patch)
		s.patches.Add(key, known)
	}
	return known.(bool)
}

// version is an object's resourceVersion as etcd counts it; 0 if it has none.
func version(obj metav1.Object) uint64 {
	v, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
