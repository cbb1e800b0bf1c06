// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

var errDown = errors.New("it is away")

var birth = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// shelf answers the lookups of templates.
type shelf struct {
	templates map[string]*v1alpha1.SandboxTemplate
	// podTemplate is why the cluster does not return its inCluster; asked counts the
	// questions to it.
	podTemplate error
	inCluster   *corev1.PodTemplate
	asked       int
}

// SandboxTemplate implements podtemplate.Lookup.
func (s *shelf) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	return s.templates[name], nil
}

// PodTemplate implements podtemplate.Lookup.
func (s *shelf) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	s.asked++
	if s.podTemplate != nil {
		return nil, s.podTemplate
	}
	return s.inCluster, nil
}

// newStock returns a Stock that knows sets, and has no sandboxes.
func newStock(sets ...*v1alpha1.SandboxSet) *Stock {
	index := poolindex.New()
	s := NewStock(nil, index, queue.New(index, clock.RealClock{}), clock.RealClock{})
	s.Sets.Replace(sets, 9)
	return s
}

func newTemplates() *Templates { return NewTemplates(Options{}, &shelf{}) }

var (
	claimOf, warm             = builders.NewClaim, builders.Warm
	podOf, withCPU            = builders.MainPod, builders.MainPodWithCPU
	setOf, patched, elsewhere = builders.StoredSet, builders.Patched, builders.Elsewhere
	smaller                   = builders.Smaller
	atRevision, atVersion     = builders.AtRevision, builders.AtVersion
	// pods is a revision of sets with the pod template of podOf.
	pods = builders.RevisionOf(podOf())
)

func behind(set *v1alpha1.SandboxSet) { set.Generation++ }
