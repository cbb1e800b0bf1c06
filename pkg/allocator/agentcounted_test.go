// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestGivenToEitherAPI: what a pool gives is counted whichever API the claim is of, and a claim
// of agent-sandbox that is refused was given nothing, and is no failed create.
func TestGivenToEitherAPI(t *testing.T) {
	registerMetrics()
	var sets setCache
	sb := agentPool(&sets, "either", "pool", "both")
	counted := func(api string) func() float64 {
		by := "unknown"
		if api == v1alpha1.AgentsGroup {
			by = "python-client"
		}
		value := func() float64 {
			v, err := testutil.GetCounterMetricValue(agentClaims.WithLabelValues("either", "both", "warm", "pool", "ready", by))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		before := value()
		return func() float64 { return value() - before }
	}
	for _, api := range []string{v1alpha1.AgentsGroup, ""} {
		n := counted(api)
		p := readied(t, sb, nil)
		if api == "" { // as it is of our own API
			delete(p.Claim.Annotations, v1alpha1.AnnotationAPI)
			delete(p.Claim.Labels, v1alpha1.AgentLabelCreatedBy)
		}
		observeAgents(p, &sets, birth)
		if got := n(); got != 1 {
			t.Errorf("a sandbox for a claim of %q is counted %v times", api, got)
		}
	}

	d := newDesk(t, setOf("a", "py"))
	d.comes(templateOfPod("py"))
	refused := d.newAttempt(func(c *v1alpha1.SandboxClaim) { ofWarmPool("a")(c); asksEnv(c) })
	p := d.planned(refused)
	n := gathered(t, "agent_sandbox_claim_creation_total")
	observeAgents(p, &sets, birth)
	if got := gathered(t, "agent_sandbox_claim_creation_total"); got != n || refused.state.Refused == nil || p.BecomesReady() {
		t.Errorf("a claim that is refused (%v) makes %d series of %d", refused.state.Refused, got, n)
	}
	if got := outcomeOf(p.Claim, nil); got != outcomeWaiting {
		t.Errorf("its create is counted as %s", got)
	}
}
