// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package accesscheck_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
)

// TestRecordRequested checks that a user needs no right for what only mutating admission changes,
// and that each attempt of an update is recorded anew.
func TestRecordRequested(t *testing.T) {
	named := func(node string) *v1alpha1.Sandbox {
		return &v1alpha1.Sandbox{Status: v1alpha1.SandboxStatus{NodeName: node}}
	}
	checker := &accesscheck.Checker{Resource: "sandboxes", PodRights: func(obj, old runtime.Object) []accesscheck.Right {
		if obj.(*v1alpha1.Sandbox).Status.NodeName == old.(*v1alpha1.Sandbox).Status.NodeName {
			return nil
		}
		return []accesscheck.Right{accesscheck.Bind(field.NewPath("spec"))}
	}}
	stored, same, other := named("a"), named("a"), named("b")
	for name, tc := range map[string]struct {
		recorded  []*v1alpha1.Sandbox
		final     *v1alpha1.Sandbox
		forbidden bool
	}{
		"not recorded":                 {final: other, forbidden: true},
		"by the user":                  {recorded: []*v1alpha1.Sandbox{other}, final: other, forbidden: true},
		"by admission":                 {recorded: []*v1alpha1.Sandbox{same}, final: other},
		"undone by admission":          {recorded: []*v1alpha1.Sandbox{other}, final: same},
		"last attempt by the user":     {recorded: []*v1alpha1.Sandbox{same, other}, final: other, forbidden: true},
		"last attempt not by the user": {recorded: []*v1alpha1.Sandbox{other, same}, final: other},
		"unchanged":                    {recorded: []*v1alpha1.Sandbox{same}, final: same},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := checker.WithRequested(context.Background())
			for _, obj := range tc.recorded {
				accesscheck.RecordRequested(ctx, obj, stored)
			}
			if err := checker.Update(nil, false)(ctx, tc.final, stored); apierrors.IsForbidden(err) != tc.forbidden || err != nil && !tc.forbidden {
				t.Errorf("got %v", err)
			}
		})
	}
}
