// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// These tests take parts of the shared cluster out of service while claims continue
// through the aggregator. They are not parallel, and put everything back.

// TestClusterRestarts kills kube-apiserver under load. No client reaches us
// through it until it is back, but what was answered holds, and what was not is
// settled by the name of the claim.
func TestClusterRestarts(t *testing.T) {
	const pool = 20
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, pool)
	crowd := c.start(t, newLoad(ns))
	var outages []outage
	for range 2 {
		crowd.AwaitMore(t, 30)
		outages = append(outages, during(t, func() error {
			if err := plane.APIServer().Kill(); err != nil {
				return err
			}
			return plane.APIServer().Start(t.Context())
		}))
	}
	crowd.AwaitMore(t, 30)
	crowd.Stop()
	crowd.checkFailures(t, outages...)
	c.awaitCalm(t, ns, pool).check(t, crowd.Answers())
}

// TestServersKilled kills our API servers, one after the other and then both,
// under load.
func TestServersKilled(t *testing.T) {
	const pool = 20
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, pool)
	crowd := c.start(t, newLoad(ns))
	var outages []outage
	one, other := sandlot.APIServers()[0], sandlot.APIServers()[1]
	for _, kill := range [][]interface{ Kill() error }{{one}, {other}, {one, other}} {
		crowd.AwaitMore(t, 30)
		outages = append(outages, during(t, func() error {
			for _, p := range kill {
				if err := p.Kill(); err != nil {
					return err
				}
			}
			if err := one.Start(t.Context()); err != nil {
				return err
			}
			return other.Start(t.Context())
		}))
		c.awaitAvailable(t)
		outages[len(outages)-1] = outages[len(outages)-1].untilNow()
	}
	crowd.AwaitMore(t, 30)
	crowd.Stop()
	crowd.checkFailures(t, outages...)
	c.awaitCalm(t, ns, pool).check(t, crowd.Answers())
}

// TestControllersKilled kills our controllers under load. Claims are served while
// there is stock, and wait for it after that.
func TestControllersKilled(t *testing.T) {
	const pool = 20
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, pool)
	crowd := c.start(t, newLoad(ns))
	crowd.AwaitMore(t, 30)
	if err := sandlot.Controllers().Kill(); err != nil {
		t.Fatal(err)
	}
	if err := sandlot.Controllers().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// They begin when the lease of the dead has run out.
	crowd.AwaitMore(t, 2*pool)
	crowd.Stop()
	crowd.checkFailures(t) // no outage at all
	c.awaitCalm(t, ns, pool).check(t, crowd.Answers())
}

// TestStoreKilled kills our etcd under load.
func TestStoreKilled(t *testing.T) {
	const pool = 20
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, pool)
	crowd := c.start(t, newLoad(ns))
	crowd.AwaitMore(t, 30)
	o := during(t, func() error {
		if err := sandlot.Etcd().Kill(); err != nil {
			return err
		}
		return sandlot.Etcd().Start(t.Context())
	})
	for _, server := range sandlot.APIServers() {
		if err := server.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitAvailable(t)
	o = o.untilNow()
	crowd.AwaitMore(t, 30)
	crowd.Stop()
	crowd.checkFailures(t, o)
	c.awaitCalm(t, ns, pool).check(t, crowd.Answers())
}
