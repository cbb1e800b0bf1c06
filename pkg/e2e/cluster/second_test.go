// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestSecondCluster runs another cluster beside the shared one, with the store
// inside its one API server, and in another namespace than the shared one's: they know
// nothing of each other.
func TestSecondCluster(t *testing.T) {
	t.Parallel()
	second, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir(), ForTests: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	})
	options := controlplane.SandlotOptions{BinDir: programs, Overlay: "single", Namespace: elsewhere}
	installed, err := second.Install(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	c := clientsFor(t, second.Config())
	expect.FilledPool(t, c, metav1.NamespaceDefault, 2)
	created := c.claim(t, metav1.NamespaceDefault, builders.Claim("only-in-the-second", 2))
	c.pod(t, metav1.NamespaceDefault, created.Status.Sandboxes[0].Name)
	checkElsewhere(t, c, metav1.NamespaceDefault, created.Status.Sandboxes[0].Name)

	_, err = admin(t).SandboxClaims(metav1.NamespaceDefault).Get(t.Context(), created.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a claim of the second cluster is in the first: %v", err)
	}
	ns := namespace(t)
	first := admin(t)
	expect.FilledPool(t, first, ns, 1)
	first.claim(t, ns, builders.Claim("claim", 1))

	// The store is kept from one install to the next.
	if err := installed.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Install(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SandboxClaims(metav1.NamespaceDefault).Get(t.Context(), created.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("after another install: %v", err)
	}
}
