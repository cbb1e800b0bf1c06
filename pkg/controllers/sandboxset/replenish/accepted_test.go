// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestSetAccepted: what is told of a revision is what the API said when it was
// made, until a sandbox of it runs, and nothing of one revision is told of another.
func TestSetAccepted(t *testing.T) {
	yes := &metav1.Condition{Status: metav1.ConditionTrue, Reason: "Accepted"}
	doubtful := &metav1.Condition{Status: metav1.ConditionUnknown, Reason: "Warned", Message: "a; b"}
	tests := map[string]struct {
		noCluster bool
		told      *metav1.Condition // of revision r1
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
				told.Type = v1alpha1.SetConditionTemplateAccepted
				set.Status.Conditions = []metav1.Condition{told}
			}
			o := &observation{set: set, goal: goal{revision: tc.revision}, said: tc.said, cluster: !tc.noCluster, now: time.Unix(1e9, 0)}
			status := set.Status.DeepCopy()
			o.setAccepted(status, tc.available)
			var want []metav1.Condition
			if tc.want != nil {
				want = []metav1.Condition{*tc.want}
				want[0].Type, want[0].ObservedGeneration = "TemplateAccepted", 3
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
