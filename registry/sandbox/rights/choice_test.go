// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/rights"
)

// TestObserveUpdate checks that a user needs no right for what mutating admission changes, and
// that each attempt of an update is observed anew.
func TestObserveUpdate(t *testing.T) {
	named := func(node string) *v1alpha1.Sandbox {
		return &v1alpha1.Sandbox{Status: v1alpha1.SandboxStatus{NodeName: node}}
	}
	guard := &rights.Guard{Resource: "sandboxes", ToChoose: func(obj, old runtime.Object) []rights.Right {
		if obj.(*v1alpha1.Sandbox).Status.NodeName == old.(*v1alpha1.Sandbox).Status.NodeName {
			return nil
		}
		return []rights.Right{rights.Bind(field.NewPath("spec"))}
	}}
	stored, same, other := named("a"), named("a"), named("b")
	for name, tc := range map[string]struct {
		observed []*v1alpha1.Sandbox
		final    *v1alpha1.Sandbox
		refused  bool
	}{
		"not observed":                 {final: other, refused: true},
		"by the user":                  {observed: []*v1alpha1.Sandbox{other}, final: other, refused: true},
		"by admission":                 {observed: []*v1alpha1.Sandbox{same}, final: other},
		"undone by admission":          {observed: []*v1alpha1.Sandbox{other}, final: same},
		"by the user in the end":       {observed: []*v1alpha1.Sandbox{same, other}, final: other, refused: true},
		"not by the user in the end":   {observed: []*v1alpha1.Sandbox{other, same}, final: other},
		"nothing is changed by anyone": {observed: []*v1alpha1.Sandbox{same}, final: same},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := guard.Observe(context.Background())
			for _, obj := range tc.observed {
				rights.ObserveUpdate(ctx, obj, stored)
			}
			if err := guard.Update(nil, false)(ctx, tc.final, stored); apierrors.IsForbidden(err) != tc.refused || err != nil && !tc.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
