// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

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

// size finds out once in an attempt what becomes of the size and metadata of the candidates
// that are like one. The result is good until the next call.
func (p *Preparer) size(ctx context.Context, from poolindex.Candidate) (*sizedRevision, error) {
	at := slices.IndexFunc(p.sized, func(s sizedRevision) bool { return s.pool == from.Pool && s.revision == from.Revision })
	if at >= 0 {
		return &p.sized[at], nil
	}
	s := sizedRevision{pool: from.Pool, revision: from.Revision}
	if set := p.smallerSet(from); set != nil {
		want, err := p.unpatched(ctx, set)
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
	if BringsPodMetadata(p.Claim) {
		var err error
		if s.podMetadata, err = p.podMetadataFor(ctx, from); err != nil {
			return nil, err
		}
	}
	p.sized = append(p.sized, s)
	return &p.sized[len(p.sized)-1], nil
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
		if s.applied, s.refused = inPlace(s.raised.template, claim); s.refused == nil {
			s.applied.Goal.Before = inplace.Before(s.have, s.applied.Template)
		}
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
func (p *Preparer) unpatched(ctx context.Context, set *v1alpha1.SandboxSet) (*runtime.RawExtension, error) {
	if err := refusedTemplate(set); err != nil {
		return nil, err // the pool keeps an older one, and so do claims
	}
	without := *set
	without.Spec.Patch = nil
	resolved, err := p.Templates.cache.ResolveSet(ctx, &without, p.Templates.late)
	if err != nil {
		return nil, err
	}
	return resolved.Template, nil
}

// smallerSet returns the set of a candidate's pool if the claim asks for the template
// that the set refers to, and the candidate may be smaller than that: because of the
// set's patch, or because it was made from what the set was before.
func (p *Preparer) smallerSet(from poolindex.Candidate) *v1alpha1.SandboxSet {
	set := p.Stock.Sets.Set(from.Pool.Namespace, from.Pool.Name)
	if set == nil || string(set.UID) != from.Pool.UID {
		return nil
	}
	asked, byRef := v1alpha1.AskedOf(p.Claim)
	if v1alpha1.SandboxTemplateOf(set) != asked || !byRef && p.Stock.Sets.Set(p.Claim.Namespace, asked) != nil {
		return nil
	}
	if !isOutdated(set, from.Revision) && (set.Spec.Patch == nil || !p.Templates.sizes.hasResourcePatch(set)) {
		return nil
	}
	return set
}

// isOutdated reports whether a sandbox of a revision may have been made from something
// else than what the set is now.
func isOutdated(set *v1alpha1.SandboxSet, revision string) bool {
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

// hasResourcePatch reports whether a set's patch may have made its sandboxes smaller.
func (s *sizes) hasResourcePatch(set *v1alpha1.SandboxSet) bool {
	key := setState{set.UID, set.Generation}
	known, ok := s.patches.Get(key)
	if !ok {
		known = inplace.PatchesResources(set.Spec.Patch)
		s.patches.Add(key, known)
	}
	return known.(bool)
}
