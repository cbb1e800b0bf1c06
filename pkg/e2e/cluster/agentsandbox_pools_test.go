// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAgentSandboxOnePool: claims of both families, all at once, from one pool that is not
// refilled meanwhile. Each gets a sandbox of its own, and the rest is left.
func TestAgentSandboxOnePool(t *testing.T) {
	t.Parallel()
	const each, left = 200, 10
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2*each+left)
	hold := []byte(`{"spec":{"scaleStrategy":{"maxUnavailable":0}}}`)
	if _, err := c.SandboxSets(ns).Patch(t.Context(), "pool", types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	agents := c.agent(t, agentClaims, ns)
	var mu sync.Mutex
	holders := map[string]string{} // of sandboxes, by name
	took := func(sandbox, claim string) {
		mu.Lock()
		defer mu.Unlock()
		if other, twice := holders[sandbox]; twice || sandbox == "" {
			t.Errorf("claim %s got sandbox %q, which %s has", claim, sandbox, other)
		}
		holders[sandbox] = claim
	}
	var group sync.WaitGroup
	seats := make(chan struct{}, 32) // as many requests at once
	for i := range each {
		group.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			claim, err := c.SandboxClaims(ns).Create(t.Context(), builders.Claim(fmt.Sprintf("ours-%03d", i), 1), metav1.CreateOptions{})
			if err != nil || len(claim.Status.Sandboxes) != 1 {
				t.Errorf("a claim of agents.kruise.io: %v: %+v", err, claim)
				return
			}
			took(claim.Status.Sandboxes[0].Name, claim.Name)
		})
		group.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			claim, err := agents.Create(t.Context(), newAgentClaim(fmt.Sprintf("theirs-%03d", i)), metav1.CreateOptions{})
			if err == nil {
				err = isAgentBound(claim)
			}
			if err != nil {
				t.Errorf("a claim of extensions.agents.x-k8s.io: %v", err)
				return
			}
			took(text(claim, "status", "sandbox", "name"), claim.GetName())
		})
	}
	group.Wait()

	list, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	free := 0
	for i := range list.Items {
		sandbox := &list.Items[i]
		holder, held := holders[sandbox.Name]
		if !held {
			free++
		}
		_, pooled := sandbox.Labels[v1alpha1.AgentLabelPool]
		if pooled == held {
			t.Errorf("sandbox %s of claim %q has the labels %v", sandbox.Name, holder, sandbox.Labels)
		}
		if theirs := held && holder[0] == 't'; v1alpha1.OfAgentSandbox(sandbox) != theirs {
			t.Errorf("sandbox %s of claim %q has the annotations %v", sandbox.Name, holder, sandbox.Annotations)
		}
	}
	if len(list.Items) != 2*each+left || free != left {
		t.Errorf("there are %d sandboxes, %d of them free; want %d and %d", len(list.Items), free, 2*each+left, left)
	}
	both, err := agents.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(both.Items) != 2*each {
		t.Errorf("%d claims are seen, want those of both families", len(both.Items))
	}
}

// TestAgentSandboxPoolEdited: a pool of either dialect is edited through the other, and
// keeps what that cannot say.
func TestAgentSandboxPoolEdited(t *testing.T) {
	t.Parallel()
	t.Run("theirs", func(t *testing.T) {
		t.Parallel()
		c, ns := admin(t), namespace(t)
		c.fillAgentPool(t, ns, 1)
		kubectl(t, ns, "", "patch", "sandboxsets.agents.kruise.io", "pool", "--type=merge", "-p",
			`{"spec": {"replicas": 2, "scaleStrategy": {"maxUnavailable": 3}}}`)
		c.awaitAgentPool(t, ns, 2)
		c.patchAgent(t, agentPools, ns, "pool", `{"spec": {"replicas": 3, "updateStrategy": {"type": "Recreate"}}}`)
		c.awaitAgentPool(t, ns, 3)
		set, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if most := set.Spec.ScaleStrategy.MaxUnavailable; most == nil || most.IntValue() != 3 {
			t.Errorf("what only a SandboxSet can say is %v", most)
		}
	})
	t.Run("ours", func(t *testing.T) {
		t.Parallel()
		c, ns := admin(t), namespace(t)
		c.makeAgent(t, agentTemplates, ns, newAgentTemplate())
		set := builders.Set("pool", 1)
		set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "python"}
		set.Spec.ScaleStrategy.Burst = new(int32(5))
		if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.awaitAgentPool(t, ns, 1)
		// A typed client reads, changes and writes all it knows of.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its controller writes as well
			pool := c.getAgent(t, agentPools, ns, "pool")
			if err := unstructured.SetNestedField(pool.Object, int64(2), "spec", "replicas"); err != nil {
				return err
			}
			_, err := c.agent(t, agentPools, ns).Update(t.Context(), pool, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		c.awaitAgentPool(t, ns, 2)
		kept, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if burst := kept.Spec.ScaleStrategy.Burst; burst == nil || *burst != 5 {
			t.Errorf("what only a SandboxSet can say is %v", burst)
		}
		c.agentBound(t, ns, newAgentClaim("claim"))
		c.claim(t, ns, builders.Claim("ours", 1))
	})
}

// TestAgentSandboxAppliedByTwo: two managers apply one pool, each in its own dialect.
// Neither takes away what is the other's.
func TestAgentSandboxAppliedByTwo(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeAgent(t, agentTemplates, ns, newAgentTemplate())
	theirs := `{"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "metadata": {"name": "pool", "labels": {"by": "theirs"}},
		"spec": {"replicas": 1, "sandboxTemplateRef": {"name": "python"}}}`
	ours := `{"apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "pool", "annotations": {"by": "ours"}},
		"spec": {"scaleStrategy": {"maxUnavailable": 4}}}`
	for range 2 {
		kubectl(t, ns, theirs, "apply", "--server-side", "--field-manager=theirs", "-f", "-")
		kubectl(t, ns, ours, "apply", "--server-side", "--field-manager=ours", "-f", "-")
	}
	check := func(strategy bool) {
		t.Helper()
		set, err := c.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if set.Labels["by"] != "theirs" || *set.Spec.Replicas != 1 || set.Spec.TemplateRef == nil || set.Spec.TemplateRef.Name != "python" {
			t.Errorf("what one applied is %v, %+v", set.Labels, set.Spec)
		}
		if have := set.Spec.ScaleStrategy.MaxUnavailable != nil && set.Spec.ScaleStrategy.MaxUnavailable.IntValue() == 4; have != strategy {
			t.Errorf("what the other applied is %+v", set.Spec.ScaleStrategy)
		}
	}
	check(true)
	// What a manager no longer says goes, if it is its own.
	kubectl(t, ns, `{"apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "pool"}}`,
		"apply", "--server-side", "--field-manager=ours", "-f", "-")
	check(false)
	// What is another's is a conflict, in either dialect.
	_, err := tryKubectl(t, "", ns, `{"apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "metadata": {"name": "pool"}, "spec": {"replicas": 7}}`,
		"apply", "--server-side", "--field-manager=ours", "-f", "-")
	if err == nil {
		t.Error("what another manager applied was taken over without a word")
	}
}

// TestAgentSandboxSeenTwice: a claim of either family is one object: the same UID and
// version, in the other's words.
func TestAgentSandboxSeenTwice(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 2)
	theirs := c.agentBound(t, ns, newAgentClaim("theirs"))
	ours := c.claim(t, ns, builders.Claim("ours", 1))
	name := text(theirs, "status", "sandbox", "name")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		here, err := c.SandboxClaims(ns).Get(ctx, "theirs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if here.UID != theirs.GetUID() || len(here.Status.Sandboxes) != 1 || here.Status.Sandboxes[0].Name != name {
			content, _ := json.Marshal(here)
			return fmt.Errorf("in our words it is %s", content)
		}
		return nil
	})
	there := c.getAgent(t, agentClaims, ns, "ours")
	if there.GetUID() != ours.UID || text(there, "status", "sandbox", "name") != ours.Status.Sandboxes[0].Name {
		t.Errorf("in their words it is %v", there.Object)
	}
}
