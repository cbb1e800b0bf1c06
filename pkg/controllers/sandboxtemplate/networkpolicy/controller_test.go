// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// The server is asked only where there may be something that the cache does not show.
func TestRemovalReader(t *testing.T) {
	type cache struct{ client.Client }
	type server struct{ client.Reader }
	c := New(Options{Client: cache{}, Reader: server{}})
	for name, test := range map[string]struct {
		change func(*v1alpha1.SandboxTemplate)
		server bool
	}{
		"never changed": {change: func(s *v1alpha1.SandboxTemplate) { s.Generation = 1 }},
		"changed":       {change: func(s *v1alpha1.SandboxTemplate) { s.Generation = 2 }, server: true},
		"a revision": {change: func(s *v1alpha1.SandboxTemplate) {
			s.Generation, s.Name, s.Labels = 2, "s-h4sh", map[string]string{v1alpha1.LabelTemplateHash: "h4sh"}
			s.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "s", UID: "s", Controller: new(true),
			}}
		}},
	} {
		template := templateOf(v1alpha1.SandboxTemplateSpec{})
		test.change(template)
		if _, asked := c.removalReader(template).(server); asked != test.server {
			t.Errorf("%s: asks the server: %v", name, asked)
		}
	}
}
