// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// TestBurst claims a warm pool of 400 in two bursts of 64 clients, with the
// pool filled up between them: each claim has Pods of its own.
func TestBurst(t *testing.T) {
	t.Parallel()
	const replicas = 3
	pool, clients := expect.Many[int32](160, 400), expect.Many(25, 64)
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, pool)

	var answers []load.Answer
	for _, name := range []string{"first", "second"} {
		burst := &crowd{namespace: ns, name: name, clients: clients, replicas: replicas, each: 2}
		// Nearly all of the pool: it is warm, but that is not for a test to see.
		c.start(t, burst).Finish()
		burst.checkFailures(t)
		answers = append(answers, burst.Answers()...)
		expect.FullPool(t, c, ns, "pool", pool)
	}
	calm := c.awaitCalm(t, ns, pool)
	calm.check(t, answers)
	holders := map[types.UID]string{}
	for _, claim := range calm.claims {
		for _, name := range sandboxNames(claim) {
			pod := calm.pods[name]
			if pod == nil {
				continue // and said so
			}
			if other, taken := holders[pod.UID]; taken {
				t.Errorf("the claims %s and %s have the same pod %s", claim.Name, other, name)
			}
			holders[pod.UID] = claim.Name
		}
	}
	if want := 2 * clients * 2 * replicas; len(holders) != want {
		t.Errorf("%d pods are claimed, want %d", len(holders), want)
	}
}
