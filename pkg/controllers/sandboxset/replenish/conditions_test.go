// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	stdcmp "cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// builderOf returns a statusBuilder for an observation that nothing was done about.
func builderOf(o *observation) *statusBuilder {
	c := o.count()
	return &statusBuilder{o: o, counts: &c, startFailure: findStartFailure(o, &c, failedOf(c.ended, o.target.revision), "")}
}

// textOf returns a condition that a statusBuilder makes.
func textOf(b *statusBuilder, kind string) string {
	status := b.build()
	got := meta.FindStatusCondition(status.Conditions, kind)
	return string(got.Status) + " " + got.Reason + ": " + got.Message
}

func TestAvailable(t *testing.T) {
	long := strings.Repeat("ü", 600)
	for name, tc := range map[string]struct {
		replicas int32
		pool     []builder
		refusal  string
		failing  bool
		before   string // what Available said of the revision
		want     string
	}{
		"some":        {replicas: 2, pool: []builder{available("a"), starting("b")}, want: "True SandboxesAvailable: "},
		"none wanted": {want: "True NoSandboxesWanted: "},
		"starting": {
			replicas: 3, pool: []builder{starting("a"), notReady("b", "PodReady", "ContainersNotReady: containers with unready status: [c]"), notReady("c", "InplaceUpdating", "x")},
			want: "False SandboxesStarting: Sandboxes of SandboxSet pool are starting",
		},
		"restarted": {
			replicas: 1, pool: []builder{notReady("a", "ContainerRestarted", "x").phase(v1alpha1.SandboxRunning)},
			want: "False SandboxesStarting: Sandboxes of SandboxSet pool are starting",
		},
		"unschedulable": {
			replicas: 3, pool: []builder{notReady("b", "Unschedulable", "0/5 nodes"), notReady("a", "Unschedulable", "0/4 nodes").age(2 * time.Hour), starting("c")},
			want: "False SandboxesCannotStart: 2 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes",
		},
		"some, and others cannot": {
			replicas: 2, pool: []builder{available("a"), notReady("b", "StartContainerFailed", "no image")},
			want: "True SandboxesAvailable: 1 sandbox of SandboxSet pool cannot start: StartContainerFailed: no image",
		},
		"too long": {
			replicas: 1, pool: []builder{notReady("b", "PodCreateFailed", long)},
			want: "False SandboxesCannotStart: 1 sandbox of SandboxSet pool cannot start: PodCreateFailed: " + strings.Repeat("ü", 224) + "...",
		},
		"runtimes to be initialized": {
			replicas: 1, pool: []builder{withoutToken("a", "")},
			want: "False SandboxesStarting: Sandboxes of SandboxSet pool are starting",
		},
		"runtimes that cannot be": {
			replicas: 2, pool: []builder{withoutToken("a", "refused the connection"), withoutToken("b", "")},
			want: "False SandboxesCannotStart: 1 sandbox of SandboxSet pool cannot start: RuntimeInitFailed: refused the connection",
		},
		"failed": {
			replicas: 1, pool: []builder{notReady("a", "PodReady", "Evicted: no memory").phase(v1alpha1.SandboxFailed)},
			want: "False SandboxesCannotStart: 1 sandbox of SandboxSet pool cannot start: Failed: Evicted: no memory",
		},
		"lost where others start": {
			replicas: 2, pool: []builder{available("a"), starting("b").phase(v1alpha1.SandboxFailed)}, failing: true, before: "x",
			want: "True SandboxesAvailable: ",
		},
		"tried again": {
			replicas: 1, pool: []builder{starting("a")}, failing: true, before: "1 sandbox of SandboxSet pool cannot start: Failed",
			want: "False SandboxesCannotStart: 1 sandbox of SandboxSet pool cannot start: Failed",
		},
		"refused": {
			replicas: 1, refusal: "exceeded quota",
			want: "False SandboxesCannotStart: SandboxSet pool cannot make sandboxes: exceeded quota",
		},
		"deleted": {replicas: 1, pool: []builder{notReady("a", "Unschedulable", "x").deleting()}, want: "False SandboxesStarting: Sandboxes of SandboxSet pool are starting"},
	} {
		t.Run(name, func(t *testing.T) {
			set := makeSet(tc.replicas)
			o := &observation{set: set, target: targetOf(current), pool: pool{sandboxes: sandboxes(tc.pool...)}, now: epoch}
			if tc.before != "" {
				set.Status.UpdateRevision = current
				set.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxesCannotStart, Message: tc.before}}
			}
			b := builderOf(o)
			b.isFailing = tc.failing
			if tc.refusal != "" {
				b.startFailure = findStartFailure(o, b.counts, nil, tc.refusal)
			}
			if got := textOf(b, v1alpha1.SetConditionAvailable); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestRolledOut(t *testing.T) {
	const yes = "True RolledOut: "
	for name, tc := range map[string]struct {
		pool       []builder
		was        metav1.ConditionStatus // of generation 1
		told       string                 // the revision that it was said of
		generation int64
		unresolved bool
		want       string
	}{
		"full":    {pool: []builder{available("a"), available("b")}, want: yes},
		"not yet": {pool: []builder{available("a"), starting("b")}, want: "False RollingOut: 1 of 2 sandboxes are of the current revision and available"},
		"older are left": {
			pool: []builder{available("a"), available("b"), available("c").revision(older)},
			want: "False RollingOut: 2 of 2 sandboxes are of the current revision and available, 1 are of an older one",
		},
		"claims took all":    {was: metav1.ConditionTrue, told: current, want: yes},
		"was not":            {was: metav1.ConditionFalse, told: current, want: "False RollingOut: 0 of 2 sandboxes are of the current revision and available"},
		"another revision":   {was: metav1.ConditionTrue, told: older, want: "False RollingOut: 0 of 2 sandboxes are of the current revision and available"},
		"another generation": {was: metav1.ConditionTrue, told: current, generation: 2, want: "False RollingOut: 0 of 2 sandboxes are of the current revision and available"},
		"no template": {
			was: metav1.ConditionTrue, told: current, unresolved: true, pool: []builder{available("a"), available("b")},
			want: "False RollingOut: The template cannot be used: TemplateNotFound: gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := makeSet(2)
			set.Generation = max(tc.generation, 1)
			if tc.was != "" {
				set.Status.UpdateRevision = tc.told
				set.Status.Conditions = []metav1.Condition{{Type: "RolledOut", Status: tc.was, Reason: "x", ObservedGeneration: 1}}
			}
			o := &observation{set: set, target: targetOf(current), pool: pool{sandboxes: sandboxes(tc.pool...)}, now: epoch}
			if tc.unresolved {
				o.target.unusable = &problem{v1alpha1.ReasonTemplateNotFound, "gone"}
			}
			if got := textOf(builderOf(o), v1alpha1.SetConditionRolledOut); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

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
			o := &observation{set: set, target: targetRevision{revision: tc.revision}, dryRun: tc.dryRun, hasCluster: !tc.noCluster, now: time.Unix(1e9, 0)}
			if tc.refused {
				o.target.unusable = &problem{v1alpha1.ReasonInvalidTemplate, "no such pod"}
			}
			if tc.missing {
				o.target.holderErr = errors.New("connection refused")
			}
			b := &statusBuilder{o: o, counts: &poolCounts{updatedAvailable: tc.available}, status: *set.Status.DeepCopy()}
			b.setAccepted()
			status := &b.status
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
