// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// TestManagedFieldsAreBounded: an object whose managedFields are large is not merged with an apply,
// nor does an apply make them so large.
func TestManagedFieldsAreBounded(t *testing.T) {
	with := func(managers, bytes int) runtime.Object {
		claim := registrytest.NewSandboxClaim("mine")
		for range managers {
			claim.ManagedFields = append(claim.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:` + strings.Repeat("x", bytes) + `":{}}}`),
			})
		}
		return claim
	}
	for name, test := range map[string]struct {
		old, updated runtime.Object
		refused      bool
		merges       int
	}{
		"few":               {with(2, 100), with(3, 100), false, 1},
		"many small ones":   {with(1000, 100), with(1001, 100), false, 1},
		"large already":     {with(3, 100<<10), with(1, 100), true, 0},
		"large by an apply": {with(1, 100<<10), with(3, 100<<10), true, 1},
	} {
		merges := 0
		merge := rest.DefaultUpdatedObjectInfo(nil, func(context.Context, runtime.Object, runtime.Object) (runtime.Object, error) {
			merges++
			return test.updated, nil
		})
		apply := base.TrackFieldManagers(nil, merge, true, &metav1.UpdateOptions{FieldManager: "me"})
		_, err := apply.UpdatedObject(t.Context(), test.old)
		if apierrors.IsInvalid(err) != test.refused || !test.refused && err != nil || merges != test.merges {
			t.Errorf("%s: %v after %d merges", name, err, merges)
		}
	}
}
