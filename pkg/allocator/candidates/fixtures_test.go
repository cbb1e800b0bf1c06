// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
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

// claimOf is a claim that is not stored.
func claimOf(change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine", UID: "claim-uid", Generation: 1},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: "pool", Replicas: new(int32(1))},
	}
	change(claim)
	return claim
}

func warm(replicas int32) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) {
		c.Spec.TemplateName = ""
		c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "py"}
		c.Spec.Replicas, c.Spec.CreateOnNoStock = &replicas, new(false)
	}
}

func podOf() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main"}]}}`)}
}

func withCPU(cpu string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}`)}
}

// pods is a revision of sets with the pod template of podOf.
var pods = func() string {
	revision, err := podtemplate.SetRevision(&v1alpha1.SandboxSet{}, podtemplate.Inline(podOf()))
	if err != nil {
		panic(err)
	}
	return revision
}()

// setOf is a set that refers to a template, or has one of its own if that is "".
func setOf(name, template string, changes ...func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "5"},
		Spec:       v1alpha1.SandboxSetSpec{Replicas: new(int32(2))},
	}
	if template == "" {
		set.Spec.Template = podOf()
	} else {
		set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

func patched(set *v1alpha1.SandboxSet) { set.Spec.Patch = &runtime.RawExtension{Raw: []byte(`{}`)} }

// smaller is a patch that makes sandboxes smaller.
func smaller(set *v1alpha1.SandboxSet) { set.Spec.Patch = withCPU("2") }

// atRevision is a set whose controller has made sandboxes of that revision from it.
func atRevision(revision string) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) {
		set.Generation, set.Status.ObservedGeneration, set.Status.UpdateRevision = 3, 3, revision
	}
}

func behind(set *v1alpha1.SandboxSet) { set.Generation++ }

func elsewhere(set *v1alpha1.SandboxSet) { set.Namespace = "other" }

func atVersion(v int) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.ResourceVersion = strconv.Itoa(v) }
}
