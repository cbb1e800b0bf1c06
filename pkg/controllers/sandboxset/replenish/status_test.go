// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	stdcmp "cmp"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestSetAccepted: what is reported of a revision is what the API dryRun when it was
// made, until a sandbox of it runs, which settles it. Nothing of one revision is
// reported of another, and what was reported is of the generation that it was
// reported for.
func TestSetAccepted(t *testing.T) {
	yes := &metav1.Condition{Status: metav1.ConditionTrue, Reason: "Accepted"}
	warned := &metav1.Condition{Status: metav1.ConditionUnknown, Reason: "Warned", Message: "a; b"}
	before := func(c *metav1.Condition) *metav1.Condition {
		c = c.DeepCopy()
		c.ObservedGeneration = 2
		return c
	}
	tests := map[string]struct {
		noCluster bool
		told      *metav1.Condition // of revision r1, at generation 2
		refused   bool              // what the spec asks for now
		missing   bool              // the same
		revision  string
		dryRun    *dryRunResult
		available int
		want      *metav1.Condition
	}{
		"without a cluster":         {noCluster: true, revision: "r1", dryRun: &dryRunResult{}, available: 1},
		"nothing known":             {revision: "r1"},
		"taken":                     {revision: "r1", dryRun: &dryRunResult{}, want: yes},
		"warned":                    {revision: "r1", dryRun: &dryRunResult{warnings: []string{"a", "b"}}, want: warned},
		"warned, but runs":          {revision: "r1", dryRun: &dryRunResult{warnings: []string{"a"}}, available: 1, want: yes},
		"ran before":                {revision: "r1", told: yes, want: yes},
		"ran before, warned again":  {revision: "r1", told: yes, dryRun: &dryRunResult{warnings: []string{"a", "b"}}, want: yes},
		"refused":                   {revision: "r1", refused: true, told: warned, dryRun: &dryRunResult{}, available: 1, want: before(warned)},
		"refused, was well":         {revision: "r1", refused: true, told: yes, want: before(yes)},
		"not held yet":              {revision: "r1", missing: true, told: warned, available: 1, want: before(warned)},
		"refused, nothing known":    {revision: "r1", refused: true, dryRun: &dryRunResult{}},
		"after a restart":           {revision: "r1", told: warned, want: warned},
		"after a restart, runs":     {revision: "r1", told: warned, available: 1, want: yes},
		"another revision":          {revision: "r2", told: warned},
		"another revision, taken":   {revision: "r2", told: warned, dryRun: &dryRunResult{}, want: yes},
		"another revision, runs":    {revision: "r2", told: yes, available: 1, want: yes},
		"another one, of which not": {revision: "r2", told: yes},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.SandboxSet{}
			set.Generation = 3
			set.Status.UpdateRevision = "r1"
			if tc.told != nil {
				told := *tc.told
				told.Type, told.ObservedGeneration = v1alpha1.SetConditionTemplateAccepted, 2
				set.Status.Conditions = []metav1.Condition{told}
			}
			o := &observation{set: set, targetRevision: targetRevision{revision: tc.revision}, dryRun: tc.dryRun, cluster: !tc.noCluster, now: time.Unix(1e9, 0)}
			if tc.refused {
				o.templateProblem = &problem{v1alpha1.ReasonInvalidTemplate, "no such pod"}
			}
			if tc.missing {
				o.templateErr = errors.New("connection refused")
			}
			status := set.Status.DeepCopy()
			o.setAccepted(status, tc.available)
			var want []metav1.Condition
			if tc.want != nil {
				want = []metav1.Condition{*tc.want}
				want[0].Type = "TemplateAccepted"
				want[0].ObservedGeneration = stdcmp.Or(want[0].ObservedGeneration, 3)
			}
			for i := range status.Conditions {
				status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			if len(status.Conditions) == 0 {
				status.Conditions = nil
			}
			if diff := cmp.Diff(want, status.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	set := makeSet(2)
	set.Generation = 7
	o := &observation{set: set, targetRevision: targetOf("abc"), pool: pool{sandboxes: sandboxes(available("a").revision("abc"))}, now: epoch}

	want := v1alpha1.SandboxSetStatus{
		ObservedGeneration: 7,
		Replicas:           1, AvailableReplicas: 1, UpdatedReplicas: 1, UpdatedAvailableReplicas: 1,
		UpdateRevision: "abc", CurrentRevision: "pool-abc",
		Selector: "agents.kruise.io/sandbox-claimed=false,agents.kruise.io/sandbox-pool=pool",
	}
	c := o.count(o.revision, o.now)
	got := o.status(&c, nil)
	got.Conditions = nil // see TestAvailable, TestRolledOut and TestScalingLimited
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	failed := o.status(&c, &problem{reasonFailedWrite, "quota"})
	told := meta.FindStatusCondition(failed.Conditions, conditionReplicaFailure)
	if told == nil || told.Message != "quota" || told.ObservedGeneration != 7 || !told.LastTransitionTime.Time.Equal(epoch) {
		t.Errorf("conditions after a failure: %+v", failed.Conditions)
	}
	set.Status = failed
	if got := o.status(&c, nil); meta.FindStatusCondition(got.Conditions, conditionReplicaFailure) != nil {
		t.Errorf("conditions after a success: %+v", got.Conditions)
	}
}
