// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestSmallInstall has the install "small" fill a pool, hand out as many sandboxes in single
// claims of several clients, and fill the pool again. Its programs keep below the memory that
// their pods may have, pages of the programs themselves included.
func TestSmallInstall(t *testing.T) {
	t.Parallel()
	const clients = 8
	pool := clients * expect.Many(20, 100)
	s := newSite(t)
	installed := s.install(t, controlplane.SandlotOptions{Overlay: "small"})
	ns := "small"
	s.makeNamespace(t, ns)
	expect.FilledPool(t, s, ns, int32(pool))

	claims := make([]*v1alpha1.SandboxClaim, pool)
	group, ctx := errgroup.WithContext(t.Context())
	for client := range clients {
		group.Go(func() (err error) {
			for i := client; i < pool && err == nil; i += clients {
				claims[i], err = s.SandboxClaims(ns).Create(ctx, builders.Claim(fmt.Sprint("claim-", i), 1), metav1.CreateOptions{})
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		expect.Claimed(t, claim, 1)
	}
	expect.FullPool(t, s, ns, "pool", int32(pool))
	expect.Invariants(t, s, ns)

	for _, p := range installed.Processes() {
		took, err := program.ReadMemory(p.Pid())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d MiB at most, of %d MiB", p.Name(), took.Peak>>20, p.MemoryLimit()>>20)
		if took.Peak > p.MemoryLimit() {
			t.Errorf("%s took %d MiB of memory, its pod may have %d MiB", p.Name(), took.Peak>>20, p.MemoryLimit()>>20)
		}
		if restarts := p.Restarts(); restarts != 0 {
			t.Errorf("%s was started again %d times", p.Name(), restarts)
		}
	}
}
