// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// coldClaim is a claim of no pool, whose sandbox is made from the template "base".
func coldClaim(name string) *unstructured.Unstructured {
	return newAgentClaim(name, map[string]any{"sandboxTemplateRef": map[string]any{"name": "base"}, "warmpool": v1alpha1.WarmPoolNone})
}

// boxNamed is the sandbox of a name; nil if there is none.
func boxNamed(t *testing.T, s *testutil.Server, name string) *v1alpha1.Sandbox {
	t.Helper()
	sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return sb
}

// starts waits for another sandbox of a name than the one of a UID, lets it become ready, and
// returns it.
func starts(t *testing.T, s *testutil.Server, name string, before types.UID) *v1alpha1.Sandbox {
	t.Helper()
	var sb *v1alpha1.Sandbox
	within(t, func() bool {
		sb = boxNamed(t, s, name)
		return sb != nil && sb.UID != before
	}, "no other sandbox is made under the name "+name)
	setStatus(t, s, sb, testutil.ReadyStatus(1, time.Now()))
	within(t, func() bool { return agentReady(t, getAgent(t, s, agentClaims, name)).Status == metav1.ConditionTrue }, name+" does not become Ready")
	return boxNamed(t, s, name)
}

func deleteBox(t *testing.T, s *testutil.Server, name string) {
	t.Helper()
	if err := agent(t, s, agentSandboxes).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestColdClaimHeals: a claim whose sandbox was made for it gets another under the same name,
// which is admitted as made by who claimed. What admission says then the claim repeats.
func TestColdClaimHeals(t *testing.T) {
	rooms := &deniesMade{}
	s := agentPool(t, 0, testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.AdmissionControl = rooms
		c.ExtraConfig.SyncWindow = 0
	}))
	claim := createAgent(t, s, coldClaim("mine"))
	first := starts(t, s, "mine", "")
	if first.Annotations["admitted-as"] == "" {
		t.Fatal("the first was not admitted")
	}
	deleteBox(t, s, "mine")
	second := starts(t, s, "mine", first.UID)
	if got, want := second.Annotations["admitted-as"], first.Annotations["admitted-as"]; got != want {
		t.Errorf("the second was admitted as %s, the first as %s", got, want)
	}
	if launch := second.Labels[v1alpha1.AgentLabelLaunchType]; launch != v1alpha1.AgentLaunchCold || !metav1.IsControlledBy(second, claim) {
		t.Errorf("launch type %q, owners %v", launch, second.OwnerReferences)
	}
	if now := getAgent(t, s, agentClaims, "mine"); now.GetUID() != claim.GetUID() || sandboxOf(now) != "mine" {
		t.Errorf("the claim is %s and has %q", now.GetUID(), sandboxOf(now))
	}

	rooms.full.Store(true)
	other := createAgentAnyway(t, s, rooms, "other")
	deleteBox(t, s, "other")
	within(t, func() bool {
		ready := agentReady(t, getAgent(t, s, agentClaims, "other"))
		return ready.Reason == "ReconcilerError" && strings.Contains(ready.Message, "no room for sandboxes")
	}, "the claim does not say what admission says")
	if sb := boxNamed(t, s, "other"); sb != nil {
		t.Errorf("%s was made, and not admitted", sb.Name)
	}
	rooms.full.Store(false)
	starts(t, s, "other", other.UID)
}

// createAgentAnyway creates a cold claim while there is room, and returns its sandbox.
func createAgentAnyway(t *testing.T, s *testutil.Server, rooms *deniesMade, name string) *v1alpha1.Sandbox {
	t.Helper()
	rooms.full.Store(false)
	createAgent(t, s, coldClaim(name))
	sb := starts(t, s, name, "")
	rooms.full.Store(true)
	return sb
}

// TestColdClaimWaitsForItsName: while the sandbox that a claim had goes, another cannot have
// its name. The claim says so, asks admission for nothing, and continues when the name is free.
func TestColdClaimWaitsForItsName(t *testing.T) {
	rooms := &deniesMade{}
	s := agentPool(t, 0, testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.AdmissionControl = rooms
		c.ExtraConfig.SyncWindow = 0
	}))
	createAgent(t, s, coldClaim("mine"))
	first := starts(t, s, "mine", "")
	if _, err := sandboxes(s).Patch(t.Context(), "mine", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	rooms.full.Store(true) // counts what admission is asked
	deleteBox(t, s, "mine")
	within(t, func() bool {
		ready := agentReady(t, getAgent(t, s, agentClaims, "mine"))
		return ready.Reason == v1alpha1.ReasonSandboxMissing && strings.Contains(ready.Message, "is being deleted")
	}, "the claim does not say that its old sandbox is still there")
	time.Sleep(2 * time.Second) // it would have tried by now
	if n := rooms.refused.Load(); n > 0 {
		t.Errorf("admission was asked %d times", n)
	}
	rooms.full.Store(false)
	freed := time.Now()
	if _, err := sandboxes(s).Patch(t.Context(), "mine", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	second := starts(t, s, "mine", first.UID)
	if took := second.CreationTimestamp.Sub(freed); took > 20*time.Second {
		t.Errorf("the claim was woken %v after the name was free", took)
	}
}

// TestOneColdSandboxOfTwoServers: of many who create a claim of one name, and sandboxes of that
// name, at two servers, one gets the name, and both servers say the same.
func TestOneColdSandboxOfTwoServers(t *testing.T) {
	one := agentPool(t, 0, withSyncWindow(time.Millisecond))
	two := testutil.Start(t, testutil.WithEtcd(one.EtcdServers), withSyncWindow(time.Millisecond))
	servers := []*testutil.Server{one, two}
	for round := range 5 {
		name := fmt.Sprintf("mine-%d", round)
		var all sync.WaitGroup
		var mu sync.Mutex
		var made []*unstructured.Unstructured
		for i := range 8 {
			client := agent(t, servers[i%2], agentClaims)
			all.Go(func() {
				claim, err := client.Create(t.Context(), coldClaim(name), metav1.CreateOptions{})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					made = append(made, claim)
				case !apierrors.IsAlreadyExists(err):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(made) != 1 {
			t.Fatalf("%d claims of one name were created", len(made))
		}
		sb := boxNamed(t, one, name)
		if sb == nil || !metav1.IsControlledBy(sb, made[0]) {
			t.Fatalf("the sandbox of claim %s is %+v", made[0].GetUID(), sb)
		}
		healed := healsOnce(t, servers, name, starts(t, one, name, ""))
		if !metav1.IsControlledBy(healed, made[0]) {
			t.Errorf("the other sandbox belongs to %v", healed.OwnerReferences)
		}
	}
}

// healsOnce deletes the sandbox of a claim, of which each server believes that it is its work,
// and returns the one that both say the claim has then.
func healsOnce(t *testing.T, servers []*testutil.Server, name string, first *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	t.Helper()
	deleteBox(t, servers[0], name)
	second := starts(t, servers[1], name, first.UID)
	for i, s := range servers {
		within(t, func() bool {
			claim, err := claims(s).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			listed := claim.Status.Sandboxes
			return len(listed) == 1 && listed[0].UID == second.UID && boxNamed(t, s, name).UID == second.UID
		}, fmt.Sprintf("server %d does not say that %s has sandbox %s", i, name, second.UID))
	}
	all, err := sandboxes(servers[0]).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + name})
	if err != nil || len(all.Items) != 1 {
		t.Errorf("%d sandboxes name the claim: %v", len(all.Items), errors.Join(err))
	}
	return second
}
