// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// TestWarmRuntimesTakeNoCommands: the agent-runtime of a warm sandbox has a token before the sandbox
// is available. One that another caller has initialized first is replaced, and no claim gets it. The
// token lasts until the sandbox goes back to its pool.
func TestWarmRuntimesTakeNoCommands(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	fleet := runtimetest.Start(t)
	var first sync.Once
	fleet.Script(func(rt *runtimetest.Runtime, _ runtimetest.Call) runtimetest.Action {
		first.Do(func() { rt.SetToken("mine") })
		return runtimetest.Action{}
	})
	fleet.Follow(t, c, ns, "")
	set := builders.Set("pool", 2)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(runtimeTemplate)}
	set, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitEventOn(t, ns, set.UID, corev1.EventTypeWarning, v1alpha1.ReasonRuntimeInitFailed, "another caller has initialized it")
	expect.FullPool(t, c, ns, "pool", 2)
	// So that no other replaces the one that goes back.
	hold := []byte(`{"spec":{"scaleStrategy":{"maxUnavailable":0}}}`)
	if _, err := c.SandboxSets(ns).Patch(t.Context(), "pool", types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, name := range c.unused(t, ns) {
		sb, err := c.Sandboxes(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if isReady(sb) != nil {
			continue // it is on its way out
		}
		rt := fleet.At(sb.Status.PodInfo.PodIP)
		if code := runtimetest.InitAsStranger(t, rt); code != http.StatusUnauthorized {
			t.Errorf("%s answers a stranger's /init with %d", name, code)
		}
		tokens[name] = rt.Token()
	}

	claim := builders.Claim("both", 2)
	claim.Spec.EnvVars = map[string]string{"PASSWORD": "hunter2"}
	claim = c.claim(t, ns, claim)
	for _, in := range claim.Status.Sandboxes {
		rt := fleet.At(in.PodIPs[0])
		if rt.Env()["PASSWORD"] != "hunter2" || rt.Token() == "" || rt.Token() != tokens[in.Name] {
			t.Errorf("%s has %v and the token %q, which was %q", in.Name, rt.Env(), rt.Token(), tokens[in.Name])
		}
	}
	if claim.Status.FailedReplicas != 0 {
		t.Errorf("%d sandboxes of the claim failed", claim.Status.FailedReplicas)
	}

	name := claim.Status.Sandboxes[0].Name
	c.patchSandbox(t, ns, name, `{"metadata":{"annotations":{"agents.kruise.io/cleanup-enabled":"true","agents.kruise.io/cleanup":"true"}}}`)
	c.awaitSandbox(t, ns, name, hasCondition(v1alpha1.SandboxConditionRecycling, metav1.ConditionTrue, v1alpha1.ReasonRecyclingSucceeded))
	back := c.awaitSandbox(t, ns, name, hasCondition(v1alpha1.SandboxConditionRuntimeInitialized, metav1.ConditionTrue, v1alpha1.ReasonSucceeded))
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := fleet.At(back.Status.PodInfo.PodIP).Token(); got == "" || got == tokens[name] {
			return fmt.Errorf("back in its pool it has the token %q, which was %q", got, tokens[name])
		}
		return nil
	})
}
