// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestRequester: in the background a claim may do no more than the user who made it.
func TestRequester(t *testing.T) {
	claimOf := func(name string) *v1alpha1.SandboxClaim {
		return &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationClaimedBy: name}}}
	}
	boss := &user.DefaultInfo{Name: "boss", Groups: []string{user.SystemPrivilegedGroup}}
	if got := requester(genericapirequest.WithUser(t.Context(), boss), claimOf("ann")); got != boss {
		t.Errorf("in a request: %+v", got)
	}
	for name, want := range map[string]string{"ann": "ann", "": user.APIServerUser} {
		got := requester(context.Background(), claimOf(name))
		if got.GetName() != want || slices.Contains(got.GetGroups(), user.SystemPrivilegedGroup) {
			t.Errorf("in the background, claimed by %q: %+v", name, got)
		}
	}
}
