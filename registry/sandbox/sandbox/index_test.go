// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// What a list looks at is bounded by the claim or the pool, whatever was claimed
// from the pool before, and no list misses what its selector selects.
func TestIndexes(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, *indexers())
	for name, set := range map[string]labels.Set{
		"claimed":   {v1alpha1.LabelSandboxPool: "a", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue, v1alpha1.LabelClaimName: "one"},
		"unclaimed": {v1alpha1.LabelSandboxPool: "a", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse},
		"other":     {v1alpha1.LabelSandboxPool: "b", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse},
		"unmarked":  {v1alpha1.LabelSandboxPool: "a"},
		"plain":     {},
	} {
		if err := store.Add(&v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		selector string
		index    string
		want     []string
	}{
		"of a pool, unclaimed":    {v1alpha1.LabelSandboxPool + "=a," + v1alpha1.LabelSandboxClaimed + "=false", v1alpha1.LabelSandboxPool, []string{"unclaimed"}},
		"of a pool, claimed":      {v1alpha1.LabelSandboxPool + "=a," + v1alpha1.LabelSandboxClaimed + "=true", "", nil},
		"of a pool":               {selector: v1alpha1.LabelSandboxPool + "=a"},
		"of two pools, unclaimed": {selector: v1alpha1.LabelSandboxPool + " in (a,b)," + v1alpha1.LabelSandboxClaimed + "=false"},
		"of a pool, not claimed":  {selector: v1alpha1.LabelSandboxPool + "=a," + v1alpha1.LabelSandboxClaimed + "!=true"},
		"of a claim":              {v1alpha1.LabelClaimName + "=one", v1alpha1.LabelClaimName, []string{"claimed"}},
		"unclaimed":               {selector: v1alpha1.LabelSandboxClaimed + "=false"},
		"everything":              {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			if err != nil {
				t.Fatal(err)
			}
			predicate := match(selector, fields.Everything())
			matches := predicate.MatcherIndex(t.Context())
			if tc.index == "" {
				if len(matches) > 0 {
					t.Errorf("is looked up by %v, which does not hold all of it", matches)
				}
				return
			}
			if len(matches) != 1 || matches[0].IndexName != "l:"+tc.index {
				t.Fatalf("is looked up by %v, want %s", matches, tc.index)
			}
			found, err := store.ByIndex(matches[0].IndexName, matches[0].Value)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, obj := range found {
				got = append(got, obj.(*v1alpha1.Sandbox).Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("looks at (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := byLabel("a", labels.Everything())(&v1alpha1.SandboxSet{}); err == nil {
		t.Error("another kind is no error")
	}
}
