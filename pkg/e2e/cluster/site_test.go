// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// site is a cluster of a test's own.
type site struct {
	*controlplane.ControlPlane
	*clients // of its admin
}

// newSite starts a cluster without Sandlot, for the time of a test, with more
// flags for its kube-apiserver.
func newSite(t *testing.T, apiServerArgs ...string) *site {
	t.Helper()
	own, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir(), APIServerArgs: apiServerArgs, ForTests: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &site{own, clientsFor(t, own.Config())}
}

// install installs Sandlot there.
func (s *site) install(t *testing.T, o controlplane.SandlotOptions) *controlplane.Sandlot {
	t.Helper()
	o.BinDir = programs
	installed, err := s.Install(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return installed
}

// makeNamespace makes a namespace that pods can be created in.
func (s *site) makeNamespace(t *testing.T, name string) {
	t.Helper()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.kube.CoreV1().Namespaces().Create(t.Context(), wanted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := s.kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
