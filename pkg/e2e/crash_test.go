// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// seedVariable repeats a run of TestCrash as far as it depends on chance.
const seedVariable = "SANDLOT_E2E_SEED"

const crashNamespace = "storm"

// crashPools are the sets that the storm claims from, with their replicas: one
// with stock, one with hardly any, one without, and one for claims that take more
// than one transaction.
var crashPools = map[string]int32{"pool": 60, "scarce": 4, "cold": 0, "big": 220}

// TestCrash kills the server again and again in the middle of a storm of claims,
// once even in the middle of its start, and looks for a broken promise at the
// end. The clients repeat what was not answered, by the same name.
func TestCrash(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if fixed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		seed = fixed
	}
	t.Logf("%s=%d", seedVariable, seed)
	chance := rand.New(rand.NewPCG(seed, 0))

	const kills = 3
	dir := t.TempDir()
	args := []string{"--simulated-start-delay", "20ms", "--sync-window", "300ms"}
	server := startServer(t, dir, args...)
	makeCrashPools(t, server.Client)
	expect.FullPool(t, server.Client.AgentsV1alpha1(), crashNamespace, "big", crashPools["big"])

	clients := startStorm(t, seed, server.Client)
	for kill := range kills {
		clients.AwaitMore(t, 40+chance.IntN(120))
		pause(t.Context(), time.Duration(chance.IntN(20))*time.Millisecond)
		clients.serve()
		server.Kill()
		if kill == 1 {
			short := launch(t, dir, args...)
			pause(t.Context(), time.Duration(chance.IntN(1500))*time.Millisecond)
			short.Kill()
		}
		server = startServer(t, dir, args...)
		clients.serve(server.Client)
	}
	clients.AwaitMore(t, 40)
	clients.Stop()
	clients.checkFailures(t)

	awaitCalm(t, server.Client)
	checkPromises(t, server.Client, clients)
	found := 0
	for _, answer := range clients.Answers() {
		if answer.Found {
			found++
		}
	}
	t.Logf("%d claims answered, %d of them found after a crash, %d refused; %d sandboxes",
		len(clients.Answers()), found, len(clients.Refusals()), len(server.sandboxes(t, crashNamespace)))
}

func makeCrashPools(t *testing.T, client versioned.Interface) {
	t.Helper()
	for name, replicas := range crashPools {
		set := builders.Set(name, replicas)
		if _, err := client.AgentsV1alpha1().SandboxSets(crashNamespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitCalm waits until no claim is in progress and every pool is full.
func awaitCalm(t *testing.T, client versioned.Interface) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := client.AgentsV1alpha1().SandboxClaims(crashNamespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Completed"})
		if err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d claims are in progress, for example %s: %+v", len(list.Items), list.Items[0].Name, list.Items[0].Status)
		}
		return nil
	})
	for name, replicas := range crashPools {
		expect.FullPool(t, client.AgentsV1alpha1(), crashNamespace, name, replicas)
	}
	// What was made for a claim and released is deleted.
	expect.Eventually(t.Context(), t, func(context.Context) error {
		for name, sandbox := range sandboxesOf(t, client, crashNamespace) {
			if sandbox.Spec.ShutdownTime != nil {
				return errors.New("to be shut down: " + name)
			}
		}
		return nil
	})
}

// pause lets some time pass, so that a kill hits anything.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
