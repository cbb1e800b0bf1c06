// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestReadyReportsMetadata: a claim of agent-sandbox that has its sandbox, and is edited to
// metadata that the pod does not get, says so where its clients read, until it is mended.
func TestReadyReportsMetadata(t *testing.T) {
	s := stateOf(fromAgents)
	s.holds(t, "box")
	p := s.next(t, Offer{}, "", "")
	claim, held := p.Claim, p.Counted
	now := s.Now.Add(time.Minute)
	bring := func(r MetadataReport, of []*v1alpha1.Sandbox) string {
		claim = MetadataSynced(claim, &r, of, now)
		c := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ClaimConditionReady)
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	for _, step := range []struct {
		name   string
		report MetadataReport
		want   string
	}{
		{"a domain that it may not use", MetadataReport{Kept: 1, Why: []string{"team"}, Invalid: true},
			"False InvalidMetadata: invalid additionalPodMetadata: 1 sandboxes keep the metadata that they had: team"},
		{"the template says otherwise", MetadataReport{Kept: 1, Why: []string{"team"}},
			"False ReconcilerError: Error seen: invalid additionalPodMetadata: 1 sandboxes keep the metadata that they had: team"},
		{"mended", MetadataReport{Changed: 1}, "True DependenciesReady: Pod is Ready"},
	} {
		if got := bring(step.report, held); got != step.want {
			t.Errorf("%s: Ready is %s, want %s", step.name, got, step.want)
		}
	}
	before := bring(MetadataReport{Kept: 1, Why: []string{"team"}, Invalid: true}, held)
	if got := bring(MetadataReport{}, nil); got != before {
		t.Errorf("without its sandbox Ready becomes %s", got)
	}
	bring(MetadataReport{Kept: 1, Why: []string{"team"}, Invalid: true}, held)

	// Another sandbox has what the claim says then.
	s.Claim, s.Held, s.Now = Reopen(claim, now), nil, now
	if got := agentReady(&Plan{Claim: s.Claim}); got != "False SandboxMissing: Sandbox does not exist" {
		t.Errorf("opened again, Ready is %s", got)
	}
	if got := agentReady(s.next(t, Offer{}, "other", "")); got != "True DependenciesReady: Pod is Ready" {
		t.Errorf("with another sandbox Ready is %s", got)
	}
	meta.SetStatusCondition(&s.Claim.Status.Conditions, metav1.Condition{Type: v1alpha1.ClaimConditionMetadataSynced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidMetadata})
	if got := agentReady(s.next(t, Offer{}, "other", "")); got != "True DependenciesReady: Pod is Ready" {
		t.Errorf("with another sandbox after one that failed Ready is %s", got)
	}
}
