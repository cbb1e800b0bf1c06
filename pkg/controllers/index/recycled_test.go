// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package index

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestRecycledByPool(t *testing.T) {
	x := &RecycledByPool{toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{recycledIndex: poolOfRecycled})}
	add := func(name string, phase v1alpha1.SandboxPhase, change func(*v1alpha1.Sandbox)) {
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{v1alpha1.LabelSandboxPool: "pool"}}}
		sandbox.Status.Phase = phase
		change(sandbox)
		if err := x.indexer.Add(sandbox); err != nil {
			t.Fatal(err)
		}
	}
	add("recycled", v1alpha1.SandboxRecycling, func(*v1alpha1.Sandbox) {})
	add("runs", v1alpha1.SandboxRunning, func(*v1alpha1.Sandbox) {})
	add("made-for-a-claim", v1alpha1.SandboxRecycling, func(s *v1alpha1.Sandbox) { s.Labels = nil })
	add("of-another", v1alpha1.SandboxRecycling, func(s *v1alpha1.Sandbox) { s.Labels[v1alpha1.LabelSandboxPool] = "other" })
	add("back", v1alpha1.SandboxRecycling, func(s *v1alpha1.Sandbox) {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "u"}}
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))}
	})
	found, err := x.OfPool("ns", "pool")
	if err != nil || len(found) != 1 || found[0].Name != "recycled" {
		t.Errorf("found %v, %v", found, err)
	}
}
