// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The server is asked for a sandbox that some user has a hand in, and not for each of
// a pool.
func TestRemovalReader(t *testing.T) {
	type cache struct{ client.Client }
	type server struct{ client.Reader }
	c := New(Options{Client: cache{}, Reader: server{}})
	owned := func(kind string) *v1alpha1.Sandbox {
		sandbox := box(new(false))
		sandbox.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "o", UID: "o", Controller: new(true),
		}}
		return sandbox
	}
	for name, test := range map[string]struct {
		sandbox *v1alpha1.Sandbox
		server  bool
	}{
		"a user's": {box(new(false)), true},
		"claimed":  {owned("SandboxClaim"), true},
		"pooled":   {owned("SandboxSet"), false},
	} {
		if _, asked := c.removalReader(test.sandbox).(server); asked != test.server {
			t.Errorf("%s: asks the server: %v", name, asked)
		}
	}
}
