// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"crypto/sha256"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	// sizesKept is how many raised templates, patches and PodTemplates are remembered.
	sizesKept = 256
	// podTemplateAge is how old a PodTemplate of the cluster may be that says how large
	// sandboxes are to be. Claims that are served from a pool do not ask for it each time.
	podTemplateAge = 10 * time.Second
)

// sizes remembers what it takes reading to know about the size of sandboxes.
type sizes struct {
	// raises are by what they were made from.
	raises *lru.Cache
	// patches says of sets at a generation whether their patch is about size.
	patches *lru.Cache
	// lookup finds templates, those of the cluster as they were a moment ago.
	lookup podtemplate.Lookup
}

type sums struct{ have, want [sha256.Size]byte }

type setState struct {
	uid        types.UID
	generation int64
}

func newSizes(lookup podtemplate.Lookup, c clock.PassiveClock) *sizes {
	return &sizes{
		raises: lru.New(sizesKept), patches: lru.New(sizesKept),
		lookup: &lateLookup{Lookup: lookup, clock: c, asked: lru.New(sizesKept)},
	}
}

// raise returns a template raised to another one.
func (s *sizes) raise(have, want *runtime.RawExtension) raised {
	key := sums{sha256.Sum256(have.Raw), sha256.Sum256(want.Raw)}
	known, ok := s.raises.Get(key)
	if !ok {
		template, changed, err := podtemplate.Raise(have, want)
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
		known = podtemplate.PatchesResources(set.Spec.Patch)
		s.patches.Add(key, known)
	}
	return known.(bool)
}

// lateLookup is a Lookup that asks the cluster for the same PodTemplate once in a
// while, and goes on with what it knows if there is no answer.
type lateLookup struct {
	podtemplate.Lookup
	clock clock.PassiveClock
	asked *lru.Cache
}

type answered struct {
	template *corev1.PodTemplate
	at       time.Time
}

// PodTemplate implements podtemplate.Lookup.
func (l *lateLookup) PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error) {
	key, now := types.NamespacedName{Namespace: namespace, Name: name}, l.clock.Now()
	value, _ := l.asked.Get(key)
	known, _ := value.(answered)
	if known.template != nil && now.Sub(known.at) < podTemplateAge {
		return known.template, nil
	}
	template, err := l.Lookup.PodTemplate(ctx, namespace, name)
	if err != nil && known.template != nil && ctx.Err() == nil {
		template, err = known.template, nil
	}
	if err == nil {
		l.asked.Add(key, answered{template, now})
	}
	return template, err
}
