// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/e2bsdk"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestRuntime runs commands, writes files and opens terminals with the SDK, in a sandbox
// whose agent-runtime is ours: it gets its token in the pool, and runs what it is asked for.
func TestRuntime(t *testing.T) {
	t.Parallel()
	g := startAlone(t, t.TempDir())
	agents := g.Client.AgentsV1alpha1()
	g.makePool(t, "pool-runtime", 1)
	address := ""
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sandboxes, err := agents.Sandboxes(team).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(sandboxes.Items) != 1 || sandboxes.Items[0].Status.PodInfo.PodIP == "" {
			return errors.New("the sandbox has no address yet")
		}
		address = sandboxes.Items[0].Status.PodInfo.PodIP
		return nil
	})
	runtime := program.Run(t, programs, "sandlot-runtime", "serve", "--address", address)
	expect.FullPool(t, agents, team, "pool-runtime", 1)
	at := e2bsdk.Gateway{API: g.url, Sandboxes: g.url, Team: team, Key: g.key}
	sdks.Tell(t, at, "runtime", "POOL=pool-runtime", "DIR="+t.TempDir())
	runtime.Stop(t)
}
