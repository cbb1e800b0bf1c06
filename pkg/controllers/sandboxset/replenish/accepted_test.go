// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	stdcmp "cmp"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestSetAccepted: what is told of a revision is what the API said when it was
// made, until a sandbox of it runs, which settles it. Nothing of one revision is told
// of another, and what was told is of the generation that it was told of.
func TestSetAccepted(t *testing.T) {
	yes := &metav1.Condition{Status: metav1.ConditionTrue, Reason: "Accepted"}
	doubtful := &metav1.Condition{Status: metav1.ConditionUnknown, Reason: "Warned", Message: "a; b"}
	before := func(c *metav1.Condition) *metav1.Condition {
		c = c.DeepCopy()
		c.ObservedGeneration = 2
		return c
	}
	tests := map[string]struct {
		noCluster bool
		told      *metav1.Condition // of revision r1, at generation 2
		refused   bool              // what the spec asks for now
		unheld    bool              // the same
		revision  string
		said      *answer
		available int
		want      *metav1.Condition
	}{
		"without a cluster":         {noCluster: true, revision: "r1", said: &answer{}, available: 1},
		"nothing known":             {revision: "r1"},
		"taken":                     {revision: "r1", said: &answer{}, want: yes},
		"warned":                    {revision: "r1", said: &answer{doubts: []string{"a", "b"}}, want: doubtful},
		"warned, but runs":          {revision: "r1", said: &answer{doubts: []string{"a"}}, available: 1, want: yes},
		"ran before":                {revision: "r1", told: yes, want: yes},
		"ran before, warned again":  {revision: "r1", told: yes, said: &answer{doubts: []string{"a", "b"}}, want: yes},
		"refused":                   {revision: "r1", refused: true, told: doubtful, said: &answer{}, available: 1, want: before(doubtful)},
		"refused, was well":         {revision: "r1", refused: true, told: yes, want: before(yes)},
		"not held yet":              {revision: "r1", unheld: true, told: doubtful, available: 1, want: before(doubtful)},
		"refused, nothing known":    {revision: "r1", refused: true, said: &answer{}},
		"after a restart":           {revision: "r1", told: doubtful, want: doubtful},
		"after a restart, runs":     {revision: "r1", told: doubtful, available: 1, want: yes},
		"another revision":          {revision: "r2", told: doubtful},
		"another revision, taken":   {revision: "r2", told: doubtful, said: &answer{}, want: yes},
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
			o := &observation{set: set, goal: goal{revision: tc.revision}, said: tc.said, cluster: !tc.noCluster, now: time.Unix(1e9, 0)}
			if tc.refused {
				o.unresolved = &trouble{v1alpha1.ReasonInvalidTemplate, "no such pod"}
			}
			if tc.unheld {
				o.materializeErr = errors.New("connection refused")
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
