// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// What autoscalers go by: which pools sandboxes are taken from, in whatever words they are
// claimed, and what sandboxes there are, each once though server and controllers know them.
func TestSandboxesInTheWordsOfAgentSandbox(t *testing.T) {
	s := testutil.Start(t)
	controllers := startManager(t, s)
	client := s.Client.AgentsV1alpha1()
	set := s.Set(t, "words", "python", 3)
	server := func() scrape { return scrapeOf(t, s.Config, s.Config.Host+"/metrics") }
	count := func(labels ...string) float64 {
		return from0(scrapeOf(t, &rest.Config{}, controllers).value("agent_sandboxes", append(labels, "namespace=words")...))
	}
	awaitCount := func(want float64, labels ...string) {
		t.Helper()
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if got := count(labels...); got != want {
				return fmt.Errorf("%v sandboxes are of %v, want %v", got, labels, want)
			}
			return nil
		})
	}
	pooled := []string{"owned_by=SandboxWarmPool", "ready_condition=true", "expired=false", "launch_type=unknown", "sandbox_template=python"}
	awaitCount(3, pooled...)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := server().value("sandlot_pool_sandboxes", "sandboxset=python", "state=available"); got != 3 {
			return fmt.Errorf("%v sandboxes are available", got)
		}
		return nil
	})

	before := server()
	claim := testutil.Claim(set, "two", 2, func(claim *v1alpha1.SandboxClaim) {
		claim.Labels = map[string]string{v1alpha1.AgentLabelCreatedBy: "a-client-of-their-own"}
	})
	if created, err := client.SandboxClaims("words").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil || len(created.Status.Sandboxes) != 2 {
		t.Fatalf("claimed %+v, %v", created, err)
	}
	given := []string{
		"namespace=words", "sandbox_template=python", "launch_type=warm", "warmpool_name=python", "pod_condition=ready", "created_by=unknown",
	}
	after := server()
	if got := from0(after.value("agent_sandbox_claim_creation_total", given...)) - from0(before.value("agent_sandbox_claim_creation_total", given...)); got != 2 {
		t.Errorf("%v sandboxes were given, want 2", got)
	}
	if got := after.value("agent_sandbox_claim_controller_startup_latency_ms") - before.value("agent_sandbox_claim_controller_startup_latency_ms"); got != 0 {
		t.Errorf("the start of %v claims of our own API was measured", got)
	}
	awaitCount(2, "owned_by=SandboxClaim", "launch_type=warm", "ready_condition=true", "sandbox_template=python")
	awaitCount(3, pooled...) // which was filled up
	awaitCount(5)

	if err := client.SandboxSets("words").Delete(t.Context(), "python", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitCount(0, "owned_by=SandboxWarmPool")
	if from0(server().value("agent_sandboxes")) != 0 || from0(scrapeOf(t, &rest.Config{}, controllers).value("agent_sandbox_build_info")) != 1 {
		t.Error("a series is shown by two programs, or by none")
	}
}

// A claim of agent-sandbox is measured when it becomes Ready, and says when it was seen and
// ready and in which trace, in the one write that binds it.
func TestClaimsOfAgentSandboxAreMeasured(t *testing.T) {
	_, endpoint := startCollector(t)
	s := testutil.Start(t, testutil.WithOptions(func(o *options.Options) { o.Traces.ConfigFile = tracingFile(t, endpoint) }))
	s.Stock(t, s.SetOf(t, s.Template(t, namespace, "measured"), "measured-pool", "", 1), 0, 1)
	server := func() scrape { return scrapeOf(t, s.Config, s.Config.Host+"/metrics") }
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := server().value("sandlot_pool_sandboxes", "sandboxset=measured-pool", "state=available"); got != 1 {
			return fmt.Errorf("%v sandboxes are available", got)
		}
		return nil
	})

	const traceID = "2cf7651916cd43dd8448eb211c80319e"
	client, err := dynamic.NewForConfig(addingHeader(s.Config, "Traceparent", "00-"+traceID+"-b7ad6b7169203331-01"))
	if err != nil {
		t.Fatal(err)
	}
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.ExtensionsGroup + "/v1beta1", "kind": "SandboxClaim",
		"metadata": map[string]any{
			"name":   "measured",
			"labels": map[string]any{v1alpha1.AgentLabelCreatedBy: v1alpha1.AgentCreatedByPython},
			"annotations": map[string]any{
				v1alpha1.AgentAnnotationClientRequested: time.Now().Format(time.RFC3339Nano),
				v1alpha1.AgentAnnotationFirstReady:      "1970-01-01T00:00:00Z",
			},
		},
		"spec": map[string]any{"sandboxTemplateRef": map[string]any{"name": "measured"}},
	}}
	claims := schema.GroupVersionResource{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1", Resource: "sandboxclaims"}
	created, err := client.Resource(claims).Namespace(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	after := server()
	of := []string{"launch_type=warm", "sandbox_template=measured"}
	for name, labels := range map[string][]string{
		"agent_sandbox_claim_controller_startup_latency_ms": of,
		"agent_sandbox_client_claim_startup_latency_ms":     of,
		"agent_sandbox_creation_latency_ms":                 append(of, "namespace="+namespace),
		"agent_sandbox_claim_creation_total": append(of, "namespace="+namespace, "warmpool_name=measured-pool",
			"pod_condition=ready", "created_by=python-client"),
	} {
		if got := after.value(name, labels...); got != 1 {
			t.Errorf("%s of %v is %v", name, labels, got)
		}
	}
	if got := from0(after.value("agent_sandbox_claim_startup_latency_ms", of...)); got != 0 {
		t.Errorf("a claim that no webhook saw was measured from there %v times", got)
	}

	stored, err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Get(t.Context(), "measured", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Status.Sandboxes) != 1 || stored.ResourceVersion != created.GetResourceVersion() {
		t.Fatalf("the claim was created at %s, and is at %s with %+v", created.GetResourceVersion(), stored.ResourceVersion, stored.Status)
	}
	seen, ready := stored.Annotations[v1alpha1.AgentAnnotationFirstObserved], stored.Annotations[v1alpha1.AgentAnnotationFirstReady]
	if !timeOf(t, ready).After(timeOf(t, seen)) || created.GetAnnotations()[v1alpha1.AgentAnnotationFirstReady] != ready {
		t.Errorf("seen %q, ready %q, answered %v", seen, ready, created.GetAnnotations())
	}
	sb, err := s.Client.AgentsV1alpha1().Sandboxes(namespace).Get(t.Context(), stored.Status.Sandboxes[0].Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, annotations := range []map[string]string{stored.Annotations, sb.Annotations} {
		if got := annotations[v1alpha1.AgentAnnotationTraceContext]; !strings.Contains(got, `"traceparent":"00-`+traceID+"-") {
			t.Errorf("the trace is %q", got)
		}
	}
}

func timeOf(t *testing.T, value string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		t.Error(err)
	}
	return at
}
