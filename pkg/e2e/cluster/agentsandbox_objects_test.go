// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// What clients of agent-sandbox know of us: the current version of its groups.
var (
	agentClaims    = extensions("sandboxclaims")
	agentPools     = extensions("sandboxwarmpools")
	agentTemplates = extensions("sandboxtemplates")
	agentSandboxes = schema.GroupVersionResource{Group: v1alpha1.AgentsGroup, Version: "v1beta1", Resource: "sandboxes"}
)

func extensions(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1", Resource: resource}
}

// agent returns the client of a resource of agent-sandbox.
func (c *clients) agent(t testing.TB, resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(resource).Namespace(namespace)
}

// newAgent returns an object of agent-sandbox with a spec.
func newAgent(resource schema.GroupVersionResource, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(),
		"kind":       kind,
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	}}
}

// newAgentClaim returns a claim of the pool "pool".
func newAgentClaim(name string) *unstructured.Unstructured {
	return newAgent(agentClaims, "SandboxClaim", name, map[string]any{"warmPoolRef": map[string]any{"name": "pool"}})
}

// newAgentPool returns a pool of the template "python".
func newAgentPool(name string, replicas int64) *unstructured.Unstructured {
	return newAgent(agentPools, "SandboxWarmPool", name, map[string]any{
		"replicas": replicas, "sandboxTemplateRef": map[string]any{"name": "python"},
	})
}

// newAgentTemplate returns the template "python" with one container.
func newAgentTemplate() *unstructured.Unstructured {
	return newAgent(agentTemplates, "SandboxTemplate", "python", map[string]any{
		"podTemplate": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "main", "image": "busybox:1"},
		}}},
	})
}

// makeAgent creates an object of agent-sandbox.
func (c *clients) makeAgent(t testing.TB, resource schema.GroupVersionResource, namespace string, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := c.agent(t, resource, namespace).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating %s %s: %v", resource.Resource, object.GetName(), err)
	}
	return made
}

// getAgent returns an object of agent-sandbox.
func (c *clients) getAgent(t testing.TB, resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := c.agent(t, resource, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("getting %s %s: %v", resource.Resource, name, err)
	}
	return object
}

// patchAgent applies a merge patch to an object of agent-sandbox.
func (c *clients) patchAgent(t testing.TB, resource schema.GroupVersionResource, namespace, name, patch string) *unstructured.Unstructured {
	t.Helper()
	object, err := c.agent(t, resource, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patching %s %s: %v", resource.Resource, name, err)
	}
	return object
}

// awaitAgent waits until an object of agent-sandbox is as it should be.
func (c *clients) awaitAgent(t testing.TB, resource schema.GroupVersionResource, namespace, name string, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	t.Helper()
	var object *unstructured.Unstructured
	client := c.agent(t, resource, namespace)
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		if object, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if err := check(object); err != nil {
			return fmt.Errorf("%s %s: %w: %v", resource.Resource, name, err, object.Object["status"])
		}
		return nil
	})
	return object
}

// fillAgentPool makes the template "python" and the pool "pool", and waits until all of
// its sandboxes are ready.
func (c *clients) fillAgentPool(t testing.TB, namespace string, replicas int64) {
	t.Helper()
	c.makeAgent(t, agentTemplates, namespace, newAgentTemplate())
	c.makeAgent(t, agentPools, namespace, newAgentPool("pool", replicas))
	c.awaitAgentPool(t, namespace, replicas)
}

func (c *clients) awaitAgentPool(t testing.TB, namespace string, replicas int64) {
	t.Helper()
	expect.FullPool(t, c, namespace, "pool", int32(replicas))
	c.awaitAgent(t, agentPools, namespace, "pool", func(pool *unstructured.Unstructured) error {
		if ready := number(pool, "status", "readyReplicas"); ready != replicas {
			return fmt.Errorf("%d sandboxes are ready, want %d", ready, replicas)
		}
		return nil
	})
}

// agentCondition is the condition of a type, or nil.
func agentCondition(object *unstructured.Unstructured, kind string) *metav1.Condition {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	content, _, _ := unstructured.NestedMap(object.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status); err != nil {
		return nil
	}
	return meta.FindStatusCondition(status.Conditions, kind)
}

// isAgentReady: what an SDK asks of a sandbox.
func isAgentReady(object *unstructured.Unstructured) error {
	if ready := agentCondition(object, "Ready"); ready == nil || ready.Status != metav1.ConditionTrue {
		return fmt.Errorf("it is not Ready: %+v", ready)
	}
	return nil
}

// isAgentBound: what an SDK asks of a claim before it uses its sandbox.
func isAgentBound(claim *unstructured.Unstructured) error {
	if err := isAgentReady(claim); err != nil {
		return err
	}
	name := text(claim, "status", "sandbox", "name")
	ips, _, _ := unstructured.NestedStringSlice(claim.Object, "status", "sandbox", "podIPs")
	switch {
	case name == "":
		return errors.New("it names no sandbox")
	case len(ips) == 0:
		return errors.New("it has no addresses")
	case claim.GetAnnotations()[v1alpha1.AgentAnnotationSandboxName] != name:
		return fmt.Errorf("its sandbox is %s, its annotation says %q", name, claim.GetAnnotations()[v1alpha1.AgentAnnotationSandboxName])
	}
	return nil
}

// agentBound creates a claim, which is bound in the answer, and returns it.
func (c *clients) agentBound(t testing.TB, namespace string, claim *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made := c.makeAgent(t, agentClaims, namespace, claim)
	if err := isAgentBound(made); err != nil {
		t.Fatalf("the answer to claim %s: %v: %v", claim.GetName(), err, made.Object)
	}
	return made
}

// text and number are fields of an object, or nothing.
func text(object *unstructured.Unstructured, fields ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, fields...)
	return value
}

func number(object *unstructured.Unstructured, fields ...string) int64 {
	value, _, _ := unstructured.NestedInt64(object.Object, fields...)
	return value
}

// podsOf returns the pods of a namespace that a selector selects.
func (c *clients) podsOf(t testing.TB, namespace, selector string) []corev1.Pod {
	t.Helper()
	list, err := c.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
