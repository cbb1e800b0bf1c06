// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestWarmPoolWithVolumes: each member of a pool has the volumes of the template from its
// birth, and keeps them when it is claimed, suspended and resumed.
func TestWarmPoolWithVolumes(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	template := newAgentTemplate()
	spec := template.Object["spec"].(map[string]any)
	pod := spec["podTemplate"].(map[string]any)["spec"].(map[string]any)
	pod["containers"].([]any)[0].(map[string]any)["volumeMounts"] = []any{map[string]any{"name": "data", "mountPath": "/data"}}
	pod["volumes"] = []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}}
	spec["volumeClaimTemplates"] = []any{map[string]any{
		"metadata": map[string]any{"name": "data"},
		"spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"},
			"resources":   map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		},
	}}
	c.makeAgent(t, agentTemplates, ns, template)
	c.makeAgent(t, agentPools, ns, newAgentPool("pool", 1))
	c.awaitAgentPool(t, ns, 1)

	claim := c.makeAgent(t, agentClaims, ns, newAgentClaim("mine"))
	name := text(claim, "status", "sandbox", "name")
	if !strings.HasPrefix(name, "pool-") {
		t.Fatalf("the claim has no member of the pool: %v", claim.Object["status"])
	}
	volume := func() types.UID {
		t.Helper()
		claim, err := c.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-"+name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim.UID
	}
	mounts := func() {
		t.Helper()
		volumes := c.pod(t, ns, name).Spec.Volumes
		if len(volumes) != 1 || volumes[0].PersistentVolumeClaim == nil || volumes[0].PersistentVolumeClaim.ClaimName != "data-"+name {
			t.Errorf("volumes of the pod: %+v", volumes)
		}
	}
	mounts()
	before := volume()
	change := func(mode, kind, says string) {
		t.Helper()
		c.patchAgent(t, agentSandboxes, ns, name, fmt.Sprintf(`{"spec":{"operatingMode":%q}}`, mode))
		c.awaitAgent(t, agentSandboxes, ns, name, func(sandbox *unstructured.Unstructured) error {
			return isAgentCondition(kind, says)(sandbox)
		})
	}
	change("Suspended", "Suspended", "True PodTerminated: Pod has been terminated. Sandbox is suspended")
	if volume() != before {
		t.Error("a suspended sandbox has another volume")
	}
	change("Running", "Ready", "True DependenciesReady: Pod is Ready")
	mounts()
	if volume() != before {
		t.Error("a resumed sandbox has another volume")
	}
}

// TestWarmPoolSaysWhyItIsEmpty: a SandboxWarmPool whose sandboxes cannot be created has a condition
// and a column that say why.
func TestWarmPoolSaysWhyItIsEmpty(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeAgent(t, agentPools, ns, newAgentPool("py3.12", 1))
	says := func(reason string) {
		t.Helper()
		c.awaitAgent(t, agentPools, ns, "py3.12", func(pool *unstructured.Unstructured) error {
			if is := agentCondition(pool, "TemplateResolved"); is == nil || is.Status != metav1.ConditionFalse || is.Reason != reason {
				return fmt.Errorf("TemplateResolved is %+v, want %s", is, reason)
			}
			return nil
		})
		if out := kubectl(t, ns, "", "get", "swp", "py3.12", "-o", "wide"); !strings.Contains(out, reason) {
			t.Errorf("kubectl get swp does not say why:\n%s", out)
		}
	}
	says("TemplateNotFound")
	template := newAgentTemplate()
	template.Object["spec"].(map[string]any)["service"] = true
	c.makeAgent(t, agentTemplates, ns, template)
	says("InvalidTemplate")
}

// TestKubectlNamesOfAgentSandbox: without a group, the names of agent-sandbox's kinds reach
// them, and what has no effect fails.
func TestKubectlNamesOfAgentSandbox(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeAgent(t, agentTemplates, ns, newAgentTemplate())
	c.makeAgent(t, agentPools, ns, newAgentPool("pool", 1))
	c.awaitAgentPool(t, ns, 1)
	c.makeAgent(t, agentClaims, ns, newAgentClaim("mine"))
	spec := map[string]any{"podTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox:1"}}}}}
	c.makeAgent(t, agentSandboxes, ns, newAgent(agentSandboxes, "Sandbox", "box", spec))

	kubectl(t, ns, "", "wait", "--for=condition=Ready", "sandbox/box", "--timeout=2m")
	kubectl(t, ns, "", "wait", "--for=condition=Ready", "sandboxclaim/mine", "--timeout=2m")
	for _, name := range []string{"sandbox", "sandboxclaim", "sandboxtemplate", "sandboxwarmpool", "swp"} {
		if out := kubectl(t, ns, "", "get", name, "-o", "name"); !strings.Contains(out, "agents.x-k8s.io/") {
			t.Errorf("kubectl get %s:\n%s", name, out)
		}
	}
	if out := kubectl(t, ns, "", "get", "sandbox.agents.kruise.io", "-o", "name"); !strings.Contains(out, "sandbox.agents.kruise.io/box") {
		t.Errorf("with the group:\n%s", out)
	}
	kubectl(t, ns, "", "patch", "sandbox", "box", "--type=merge", "-p", `{"spec":{"operatingMode":"Suspended"}}`)
	kubectl(t, ns, "", "wait", "--for=condition=Suspended", "sandbox/box", "--timeout=2m")
	kubectl(t, ns, "", "scale", "swp", "pool", "--replicas=2")
	c.awaitAgentPool(t, ns, 2)

	// A field of the other group has no effect, whichever name is used.
	for _, args := range [][]string{
		{"sandboxes", "box", "--type=merge", "-p", `{"spec":{"operatingMode":"Running"}}`},
		{"sbx", "box", "--type=json", "-p", `[{"op":"add","path":"/spec/operatingMode","value":"Running"}]`},
		{"sandbox", "box", "--type=merge", "-p", `{"spec":{"paused":false}}`},
	} {
		if _, err := tryKubectl(t, "", ns, "", append([]string{"patch"}, args...)...); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("kubectl patch %v ends with %v", args, err)
		}
	}
	kubectl(t, ns, "", "delete", "sandbox", "box", "--timeout=2m")
	kubectl(t, ns, "", "delete", "sandboxclaim", "mine", "--timeout=2m")
	c.awaitAgentGone(t, ns, "box")
}
