// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

func TestFreshLimit(t *testing.T) {
	tests := map[string]struct {
		said        []*int32
		bytes, each int64
		want        int
	}{
		"nothing said":                {bytes: 1 << 30, each: 1000, want: 7},
		"the template":                {said: []*int32{nil, new(int32(3))}, bytes: 1 << 30, each: 1000, want: 3},
		"the set before the template": {said: []*int32{new(int32(5)), new(int32(3))}, bytes: 1 << 30, each: 1000, want: 5},
		"none":                        {said: []*int32{new(int32(0)), new(int32(3))}, bytes: 1 << 30, each: 1000, want: 0},
		"more than the server's":      {said: []*int32{new(int32(9000))}, bytes: 1 << 30, each: 1000, want: 9000},
		"large ones":                  {said: []*int32{new(int32(9000))}, bytes: 9999, each: 1000, want: 9},
		"none fits":                   {bytes: 999, each: 1000, want: 0},
		"of no size":                  {bytes: 1, want: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := claims.NewFreshLimit(7, tc.bytes, tc.each, tc.said...); got.Most != tc.want {
				t.Errorf("%d, want %d: %v", got.Most, tc.want, got)
			}
		})
	}
}

func TestFreshLimitLeft(t *testing.T) {
	pooled, made := &v1alpha1.Sandbox{}, &v1alpha1.Sandbox{}
	pooled.Annotations = map[string]string{v1alpha1.AnnotationPoolUID: "set-uid", v1alpha1.AnnotationSandboxPriority: v1alpha1.PriorityClaimed}
	gone := made.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{}
	limit := claims.FreshLimit{Most: 2}
	for held, want := range map[*[]*v1alpha1.Sandbox]int{
		{}:                       2,
		{pooled, pooled, pooled}: 2,
		{pooled, made}:           1,
		{made, pooled, made}:     0,
		{made, made, made}:       0,
		{gone, made, gone}:       1,
	} {
		if got := limit.Left(*held); got != want {
			t.Errorf("%d are left of 2 with %d held, want %d", got, len(*held), want)
		}
	}
}
