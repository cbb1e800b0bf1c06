// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// initialization is what a runtime was sent, and took.
type initialization struct {
	EnvVars     map[string]string `json:"envVars"`
	AccessToken string            `json:"accessToken"`
}

// initializations are what a runtime took, one after the other.
func initializations(t *testing.T, rt *runtimetest.Runtime) []initialization {
	t.Helper()
	var took []initialization
	for _, call := range rt.Calls() {
		if call.Path != "/init" || call.Status != 0 && call.Status != http.StatusNoContent {
			continue
		}
		var one initialization
		if err := json.Unmarshal(call.Body, &one); err != nil {
			t.Errorf("runtime %s was sent %q", rt.IP, call.Body)
		}
		took = append(took, one)
	}
	return took
}

// watch looks at each state of each claim from now on: no sandbox counts before its
// runtime is set up. The function that it returns ends it.
func (c *crash) watch(t *testing.T, by *replicas.Replica) (stop func()) {
	t.Helper()
	watch, err := by.Client.AgentsV1alpha1().SandboxClaims(crashNamespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range watch.ResultChan() {
			claim, ok := event.Object.(*v1alpha1.SandboxClaim)
			if !ok {
				continue
			}
			for _, entry := range claim.Status.Sandboxes {
				if len(entry.PodIPs) != 1 || c.fleet.At(entry.PodIPs[0]).Token() == "" {
					t.Errorf("claim %s counts sandbox %s at %q, whose runtime is not set up", claim.Name, entry.Name, entry.PodIPs)
				}
			}
		}
	})
	return func() {
		watch.Stop()
		watching.Wait()
	}
}

// checkSteps checks, when all claims are at their ends, what is promised about steps:
//
//  1. expect.Invariants hold, and no sandbox is held that does not count.
//  2. Each sandbox that counts was set up by its runtime, with the environment of its
//     claim.
//  3. No runtime was ever sent two things: a repeated call was the same.
func (c *crash) checkSteps(t *testing.T, by *replicas.Replica) {
	t.Helper()
	allClaims, allSandboxes := expect.Invariants(t, by.Client.AgentsV1alpha1(), crashNamespace)
	addresses := map[string]string{}
	for i := range allSandboxes {
		sb := &allSandboxes[i]
		addresses[sb.Name] = sb.Status.PodInfo.PodIP
		if sb.Annotations[v1alpha1.AnnotationStarting] != "" && sb.Spec.ShutdownTime == nil {
			t.Errorf("sandbox %s is still starting: %v", sb.Name, sb.Annotations)
		}
	}
	for i := range allClaims {
		claim := &allClaims[i]
		for _, entry := range claim.Status.Sandboxes {
			rt := c.fleet.At(addresses[entry.Name])
			if diff := cmp.Diff(claim.Spec.EnvVars, rt.Env()); diff != "" || rt.Token() == "" {
				t.Errorf("claim %s, sandbox %s: token %q, environment (-claim +runtime):\n%s", claim.Name, entry.Name, rt.Token(), diff)
			}
		}
	}
	tokens := map[string]string{}
	for _, rt := range c.fleet.Runtimes() {
		took := initializations(t, rt)
		for _, again := range took {
			if diff := cmp.Diff(took[0], again); diff != "" {
				t.Errorf("runtime %s was told two things (-first +again):\n%s", rt.IP, diff)
			}
		}
		if len(took) > 0 {
			if other, ok := tokens[took[0].AccessToken]; ok {
				t.Errorf("runtimes %s and %s have one token", other, rt.IP)
			}
			tokens[took[0].AccessToken] = rt.IP
		}
	}
}
