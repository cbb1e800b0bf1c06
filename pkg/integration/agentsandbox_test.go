// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

var (
	agentClaims    = schema.GroupVersionResource{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1", Resource: "sandboxclaims"}
	agentSandboxes = schema.GroupVersionResource{Group: v1alpha1.AgentsGroup, Version: "v1beta1", Resource: "sandboxes"}
)

// agent is a client of agent-sandbox, with a connection of its own if headers are given
// that it adds to its requests.
func agent(t *testing.T, s *testutil.Server, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	return agentOf(t, s.Config, resource)
}

func agentOf(t *testing.T, config *rest.Config, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(resource).Namespace(namespace)
}

// agentPool is a server with the template "base" and a pool "pool" of n ready sandboxes of
// it. No controller runs beside it.
func agentPool(t *testing.T, n int, opts ...testutil.Option) *testutil.Server {
	t.Helper()
	s := start(t, opts...)
	set := s.SetOf(t, s.Template(t, namespace, "base"), "pool", "", int32(n))
	s.Stock(t, set, 0, n)
	return s
}

// newAgentClaim is a claim with a spec, of the pool "pool" if that says nothing else.
func newAgentClaim(name string, spec map[string]any) *unstructured.Unstructured {
	if spec["warmPoolRef"] == nil && spec["sandboxTemplateRef"] == nil {
		if spec == nil {
			spec = map[string]any{}
		}
		spec["warmPoolRef"] = map[string]any{"name": "pool"}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": agentClaims.GroupVersion().String(), "kind": "SandboxClaim",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func createAgent(t *testing.T, s *testutil.Server, claim *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := agent(t, s, agentClaims).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating claim %s: %v", claim.GetName(), err)
	}
	return made
}

func getAgent(t *testing.T, s *testutil.Server, resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := agent(t, s, resource).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("getting %s %s: %v", resource.Resource, name, err)
	}
	return object
}

// agentConditions are those of an object, in their order.
func agentConditions(t *testing.T, object *unstructured.Unstructured) []metav1.Condition {
	t.Helper()
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	content, _, err := unstructured.NestedMap(object.Object, "status")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	return status.Conditions
}

// agentReady is the condition Ready of an object, which it has to have.
func agentReady(t *testing.T, object *unstructured.Unstructured) metav1.Condition {
	t.Helper()
	for _, condition := range agentConditions(t, object) {
		if condition.Type == "Ready" {
			return condition
		}
	}
	t.Fatalf("%s %s has no condition Ready: %v", object.GetKind(), object.GetName(), object.Object["status"])
	return metav1.Condition{}
}

// sandboxOf is the name of the sandbox of a claim.
func sandboxOf(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "status", "sandbox", "name")
	return name
}
