// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
)

// sizesKept is how many raised templates, and how many patches, are remembered.
const sizesKept = 256

// sizes remembers what it takes reading to know about the size of sandboxes.
type sizes struct {
	// raises are by what they were made from.
	raises *lru.Cache
	// patches says of sets at a generation whether their patch is about size.
	patches *lru.Cache
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
		template, changed, err := podresize.Raise(have, want)
		if !changed {
			template = nil // nothing is kept of one that stays as it is
		}
		known = raised{template: template, resize: changed, failed: err}
		s.raises.Add(key, known)
	}
	r := known.(raised)
	if !r.resize {
		r.template = have
	}
	return r
}

// patched says whether a set's patch may have made its sandboxes smaller.
func (s *sizes) patched(set *v1alpha1.SandboxSet) bool {
	key := setState{set.UID, set.Generation}
	known, ok := s.patches.Get(key)
	if !ok {
		known = podresize.PatchesResources(set.Spec.Patch)
		s.patches.Add(key, known)
	}
	return known.(bool)
}
