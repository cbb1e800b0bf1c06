// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	parent      = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	inTrace     = `{"traceparent":"` + parent + `"}`
	otherParent = "00-1bf7651916cd43dd8448eb211c80319d-b7ad6b7169203331-01"
)

func ofAgentSandbox(c *v1alpha1.SandboxClaim) {
	c.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
}

// What is noted of a claim when it is created: of agent-sandbox only.
func TestObserve(t *testing.T) {
	seen := birth.Add(123456789)
	claim := claimOf(ofAgentSandbox)
	claim.CreationTimestamp = metav1.NewTime(birth)
	observed := Observe(claim, seen, inTrace)
	if got := observed.Annotations[v1alpha1.AgentAnnotationFirstObserved]; got != birth.UTC().Format("2006-01-02T15:04:05")+".123456789Z" {
		t.Errorf("it was seen at %q", got)
	}
	if got := observed.Annotations[v1alpha1.AgentAnnotationTraceContext]; got != inTrace {
		t.Errorf("its trace is %q", got)
	}
	if len(claim.Annotations) != 1 {
		t.Errorf("the claim that was admitted was changed: %v", claim.Annotations)
	}

	if got := Observe(claim, birth.Add(-time.Hour), "").Annotations[v1alpha1.AgentAnnotationFirstObserved]; got != stamp(birth) {
		t.Errorf("it was seen at %q, before it was created", got)
	}
	own := `{"traceparent":"` + otherParent + `"}`
	claim.Annotations[v1alpha1.AgentAnnotationTraceContext] = own
	if got := Observe(claim, seen, inTrace).Annotations[v1alpha1.AgentAnnotationTraceContext]; got != own {
		t.Errorf("the client's trace became %q", got)
	}
	claim.Annotations[v1alpha1.AgentAnnotationTraceContext] = "nonsense"
	if got := Observe(claim, seen, inTrace).Annotations[v1alpha1.AgentAnnotationTraceContext]; got != inTrace {
		t.Errorf("nonsense is %q in a request that is traced", got)
	}

	ours := claimOf(func(c *v1alpha1.SandboxClaim) { c.Annotations = map[string]string{"a": "b"} })
	if got := Observe(ours, seen, inTrace); got != ours {
		t.Errorf("a claim of our own API has %v", got.Annotations)
	}
}

// The transaction that makes a claim Ready says when that was, once; the trace is on what
// it holds.
func TestFirstReady(t *testing.T) {
	observed := func(c *v1alpha1.SandboxClaim) {
		of(1)(c)
		ofAgentSandbox(c)
		c.Annotations[v1alpha1.AgentAnnotationFirstObserved] = stamp(birth)
		c.Annotations[v1alpha1.AgentAnnotationTraceContext] = inTrace
	}
	next := func(s State) *Plan {
		t.Helper()
		marks, err := NewMarks(s.Claim)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Assess(s).Next(Offer{Candidates: []Candidate{{Sandbox: stocked("a"), Lock: "lock"}}}, marks)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	s := stateOf(observed)
	before := len(s.Claim.Annotations)
	p := next(s)
	if got := p.Claim.Annotations[v1alpha1.AgentAnnotationFirstReady]; got != stamp(s.Now) || !p.BecomesReady() {
		t.Errorf("it was Ready first at %q, first %v", got, p.BecomesReady())
	}
	if got := p.Bound[0].Annotations[v1alpha1.AgentAnnotationTraceContext]; got != inTrace {
		t.Errorf("the trace of its sandbox is %q", got)
	}
	if len(s.Claim.Annotations) != before {
		t.Errorf("the stored claim was changed: %v", s.Claim.Annotations)
	}

	again := stateOf(observed, func(c *v1alpha1.SandboxClaim) { c.Annotations[v1alpha1.AgentAnnotationFirstReady] = "then" })
	if p := next(again); p.Claim.Annotations[v1alpha1.AgentAnnotationFirstReady] != "then" || p.BecomesReady() {
		t.Errorf("a claim that was Ready before is said to be Ready first: %v", p.Claim.Annotations)
	}
	unseen := stateOf(of(1), ofAgentSandbox, func(c *v1alpha1.SandboxClaim) {
		c.Annotations[v1alpha1.AgentAnnotationTraceContext] = "nonsense"
	})
	p = next(unseen)
	if _, noted := p.Claim.Annotations[v1alpha1.AgentAnnotationFirstReady]; noted || !p.BecomesReady() {
		t.Errorf("a claim that was not observed: %v, first %v", p.Claim.Annotations, p.BecomesReady())
	}
	if got, has := p.Bound[0].Annotations[v1alpha1.AgentAnnotationTraceContext]; has {
		t.Errorf("the trace of its sandbox is %q", got)
	}
	if p := next(stateOf(of(1))); p.Bound[0].Annotations[v1alpha1.AgentAnnotationTraceContext] != "" || p.Claim.Annotations[v1alpha1.AgentAnnotationFirstReady] != "" {
		t.Errorf("a claim of our own API has %v", p.Claim.Annotations)
	}
}
