// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Anyone who may write sandboxes can make one that bears the UID of a set as that of
// another kind, which takes no right. It is not in the pool.
func TestControlledInFull(t *testing.T) {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "u"}}
	good := metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "u", Controller: new(true)}
	for name, tc := range map[string]struct {
		change func(*metav1.OwnerReference)
		want   int
	}{
		"the set's":      {func(*metav1.OwnerReference) {}, 1},
		"another kind":   {func(r *metav1.OwnerReference) { r.Kind = "ConfigMap" }, 0},
		"another group":  {func(r *metav1.OwnerReference) { r.APIVersion = "v1" }, 0},
		"another name":   {func(r *metav1.OwnerReference) { r.Name = "other" }, 0},
		"not controlled": {func(r *metav1.OwnerReference) { r.Controller = nil }, 0},
	} {
		ref := good
		tc.change(&ref)
		find := func(types.UID) ([]*v1alpha1.Sandbox, error) {
			return []*v1alpha1.Sandbox{{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{ref}}}}, nil
		}
		if got, err := controlled(find, "SandboxSet", set); err != nil || len(got) != tc.want {
			t.Errorf("%s: %d, %v", name, len(got), err)
		}
	}
}
