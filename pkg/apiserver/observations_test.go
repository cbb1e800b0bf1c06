// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// inAgentSandbox is a context of a request in the API of agent-sandbox that is traced.
func inAgentSandbox(t *testing.T) (context.Context, trace.SpanContext) {
	t.Helper()
	ctx := registrytest.Context(t, "sandboxclaims")
	info, _ := genericapirequest.RequestInfoFrom(ctx)
	other := *info
	other.APIGroup, other.APIVersion = v1alpha1.ExtensionsGroup, "v1beta1"
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: trace.FlagsSampled,
	})
	return trace.ContextWithSpanContext(genericapirequest.WithRequestInfo(ctx, &other), span), span
}

// What is noted on a claim of agent-sandbox, and on its sandbox, is in the transaction that
// binds it, and no client changes what is the server's.
func TestClaimObservations(t *testing.T) {
	s := newClaimStorage(t, nil)
	s.stock(t, registrytest.Namespace, 2)
	ctx, span := inAgentSandbox(t)
	begin := time.Now()
	claim := claimFailing("observed", 1)
	claim.Annotations = map[string]string{
		v1alpha1.AnnotationAPI:                  v1alpha1.AgentsGroup,
		v1alpha1.AgentAnnotationFirstObserved:   "1970-01-01T00:00:00Z",
		v1alpha1.AgentAnnotationFirstReady:      "1970-01-01T00:00:00Z",
		v1alpha1.AgentAnnotationClientRequested: "whenever",
	}
	obj, err := s.claims.Create(ctx, claim, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created := obj.(*v1alpha1.SandboxClaim)
	if len(created.Status.Sandboxes) != 1 {
		t.Fatalf("the claim says %+v", created.Status)
	}
	var times []time.Time
	for _, key := range []string{v1alpha1.AgentAnnotationFirstObserved, v1alpha1.AgentAnnotationFirstReady} {
		at, err := time.Parse(time.RFC3339Nano, created.Annotations[key])
		if err != nil || at.Before(begin.Truncate(time.Second)) || at.After(time.Now()) {
			t.Errorf("%s is %v, %v", key, at, err)
		}
		times = append(times, at)
	}
	if times[0].Before(created.CreationTimestamp.Time) || times[1].Before(times[0]) {
		t.Errorf("created at %v, seen and ready at %v", created.CreationTimestamp, times)
	}
	if got := created.Annotations[v1alpha1.AgentAnnotationClientRequested]; got != "whenever" {
		t.Errorf("what the client said became %q", got)
	}

	sandbox, err := s.sandboxes.Get(registrytest.Context(t, "sandboxes"), created.Status.Sandboxes[0].Name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound := sandbox.(*v1alpha1.Sandbox)
	if bound.ResourceVersion != created.ResourceVersion || s.get(t, "observed").ResourceVersion != created.ResourceVersion {
		t.Errorf("the claim is at %s, and was written again at %s; its sandbox is at %s",
			created.ResourceVersion, s.get(t, "observed").ResourceVersion, bound.ResourceVersion)
	}
	for what, annotations := range map[string]map[string]string{"claim": created.Annotations, "sandbox": bound.Annotations} {
		carried := map[string]string{}
		if err := json.Unmarshal([]byte(annotations[v1alpha1.AgentAnnotationTraceContext]), &carried); err != nil {
			t.Errorf("the trace context of the %s: %v", what, err)
		}
		if want := "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"; carried["traceparent"] != want {
			t.Errorf("the %s is in the trace %v, want %s", what, carried, want)
		}
	}

	changed := created.DeepCopy()
	delete(changed.Annotations, v1alpha1.AgentAnnotationFirstReady)
	changed.Annotations[v1alpha1.AgentAnnotationFirstObserved] = "1970-01-01T00:00:00Z"
	changed.Annotations[v1alpha1.AgentAnnotationClientRequested] = "later"
	if _, _, err := s.claims.Update(ctx, "observed", rest.DefaultUpdatedObjectInfo(changed), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	updated := s.get(t, "observed").Annotations
	for _, key := range []string{v1alpha1.AgentAnnotationFirstObserved, v1alpha1.AgentAnnotationFirstReady} {
		if updated[key] != created.Annotations[key] {
			t.Errorf("a client made %s %q", key, updated[key])
		}
	}
	if updated[v1alpha1.AgentAnnotationClientRequested] != "later" {
		t.Errorf("the client's own annotation is %q", updated[v1alpha1.AgentAnnotationClientRequested])
	}

	ours := s.create(t, claimFailing("ours", 1))
	for _, key := range []string{v1alpha1.AgentAnnotationFirstObserved, v1alpha1.AgentAnnotationFirstReady, v1alpha1.AgentAnnotationTraceContext} {
		if got, has := ours.Annotations[key]; has {
			t.Errorf("a claim of our own API has %s: %s", key, got)
		}
	}
}
