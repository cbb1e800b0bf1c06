// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// notReady is a starting sandbox that says why.
func notReady(name, reason, message string) builder {
	b := starting(name).phase(v1alpha1.SandboxPending).ready(false)
	b.Status.Conditions[0].Reason, b.Status.Conditions[0].Message = reason, message
	return b
}

// withoutToken is a sandbox whose pod is ready, and whose agent-runtime has no token.
func withoutToken(name, why string) builder {
	b := available(name)
	b.Status.Conditions = append(b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionRuntimeInitialized, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending, Message: why,
	})
	return b
}

// told returns a condition that an observation leads to as text.
func (o *observation) told(kind string) string {
	c := o.count(o.revision, o.now)
	o.failed = o.failedOf(&c)
	status := o.status(&c, nil)
	got := meta.FindStatusCondition(status.Conditions, kind)
	return string(got.Status) + " " + got.Reason + ": " + got.Message
}

// TestPoisonedSandboxesHaveNotWorked: where sandboxes are poisoned again and again, they are made anew at growing
// intervals, although their pods get ready.
func TestPoisonedSandboxesHaveNotWorked(t *testing.T) {
	claimed := withoutToken("a", "")
	claimed.OwnerReferences = nil
	for name, tc := range map[string]struct {
		sandbox builder
		want    bool
	}{
		"available": {available("a"), true}, "starting": {starting("a"), false}, "without a token": {withoutToken("a", ""), false},
		"taken at once, and being set up": {claimed, true},
	} {
		if got := worked(tc.sandbox.Sandbox); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
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
			o := &observation{set: set, targetRevision: targetOf(current), pool: pool{sandboxes: sandboxes(tc.pool...)}, now: epoch, createError: tc.refusal, failing: tc.failing}
			if tc.before != "" {
				set.Status.UpdateRevision = current
				set.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxesCannotStart, Message: tc.before}}
			}
			if got := o.told(v1alpha1.SetConditionAvailable); got != tc.want {
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
			o := &observation{set: set, targetRevision: targetOf(current), pool: pool{sandboxes: sandboxes(tc.pool...)}, now: epoch}
			if tc.unresolved {
				o.templateProblem = &problem{v1alpha1.ReasonTemplateNotFound, "gone"}
			}
			if got := o.told(v1alpha1.SetConditionRolledOut); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// A text that changes alone is written at intervals; with anything else it goes along.
func TestTroubleIsSpaced(t *testing.T) {
	for _, kind := range spacedConditions {
		t.Run(kind, func(t *testing.T) { testSpaced(t, kind) })
	}
}

func testSpaced(t *testing.T, kind string) {
	m := &conditionThrottle{}
	say := func(status metav1.ConditionStatus, message string, replicas int32) *v1alpha1.SandboxSetStatus {
		return &v1alpha1.SandboxSetStatus{Replicas: replicas, Conditions: []metav1.Condition{{Type: kind, Status: status, Message: message}}}
	}
	edited := say(metav1.ConditionTrue, "e", 2)
	edited.Conditions[0].ObservedGeneration = 2
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	for i, step := range []struct {
		after          time.Duration
		before, status *v1alpha1.SandboxSetStatus
		want           string
		wait           time.Duration
	}{
		{0, say(no, "a", 1), say(no, "b", 1), "b", 0},
		{time.Second, say(no, "b", 1), say(no, "c", 1), "b", 9 * time.Second},
		{2 * time.Second, say(no, "b", 1), say(no, "c", 2), "c", 0},
		{3 * time.Second, say(no, "c", 2), say(yes, "", 2), "", 0},
		{12 * time.Second, say(yes, "", 2), say(yes, "d", 2), "", time.Second},
		{13 * time.Second, say(yes, "", 2), say(yes, "d", 2), "d", 0},
		{14 * time.Second, say(yes, "d", 2), edited, "e", 0},
	} {
		got, wait := m.spaced(step.before, step.status, epoch.Add(step.after))
		if got.Conditions[0].Message != step.want || wait != step.wait {
			t.Errorf("step %d: %q, again after %s", i, got.Conditions[0].Message, wait)
		}
	}
}

// Each start that fails changes the counts in the messages of two conditions. A large pool
// of which one after another fails is not written at each.
func TestFailingPoolIsNotWrittenEachTime(t *testing.T) {
	m, set := &conditionThrottle{}, makeSet(100)
	writes := 0
	for failed := range 100 {
		o := &observation{set: set, targetRevision: targetOf(current), now: epoch.Add(time.Duration(failed) * time.Millisecond), maxPending: DefaultMaxPendingTimeout}
		var all []builder
		for i := range 100 {
			reason := ""
			if i < failed {
				reason = v1alpha1.ReasonStartContainerFailed
			}
			all = append(all, notReadyFor(fmt.Sprint("s", i), time.Second, reason, "").age(time.Second))
		}
		o.sandboxes = sandboxes(all...)
		c := o.count(o.revision, o.now)
		status := o.status(&c, nil)
		next, _ := m.spaced(&set.Status, &status, o.now)
		if !equality.Semantic.DeepEqual(&set.Status, next) {
			writes++
		}
		set.Status = *next
	}
	if writes > 3 {
		t.Errorf("the status is written %d times", writes)
	}
}

func TestTroubleEventDue(t *testing.T) {
	m := &conditionThrottle{}
	for i, step := range []struct {
		after  time.Duration
		reason string
		n      int
		want   bool
	}{
		{0, "Unschedulable", 1, true},
		{time.Second, "Unschedulable", 5, false},
		{2 * time.Second, "StartContainerFailed", 1, true},
		{3 * time.Second, "Forbidden", 0, false},
		{troubleEventInterval, "StartContainerFailed", 1, false},
		{troubleEventInterval + 2*time.Second, "StartContainerFailed", 1, true},
	} {
		if got := m.eventDue(&startFailure{reason: step.reason, sandboxes: step.n}, epoch.Add(step.after)); got != step.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
	if m.eventDue(nil, epoch.Add(time.Hour)) {
		t.Error("an event of nothing")
	}
}

func TestRefusalOf(t *testing.T) {
	kind := v1alpha1.Resource("sandboxes")
	for want, err := range map[string]error{
		"sandboxes.agents.kruise.io is forbidden: exceeded quota": apierrors.NewForbidden(kind, "pool-x", errors.New("exceeded quota")),
		"etcd is nearly full": apierrors.NewTooManyRequests("etcd is nearly full", 1),
		"":                    apierrors.NewTimeoutError("later", 1),
	} {
		if got := createErrorMessage(err, "pool-x"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := createErrorMessage(errors.New("connection refused"), "x"); got != "" {
		t.Errorf("%q of no answer", got)
	}
}

// testCannotStart: one event and one status report sandboxes that cannot start, and a
// pool that comes to be full is rolled out, also when a claim takes one away.
func testCannotStart(t *testing.T, f *fixture) {
	events := &recorded{t: t}
	f.createSet(2)
	f.reconcile()
	f.c.report.recorder = events
	for _, sandbox := range f.wantPooled(2) {
		sandbox.Status = notReady("x", "Unschedulable", "0/4 nodes").Status
		sandbox.Status.Conditions[0].LastTransitionTime = metav1.Now()
		if err := f.api.Status().Update(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
	}
	f.sync()
	f.reconcile()
	events.want("sandboxes that cannot start", "Warning SandboxesCannotStart: Sandboxes cannot start: Unschedulable: 0/4 nodes")
	f.pass(time.Minute)
	f.reconcile()
	events.want("the same")
	f.wantConditions("Available False SandboxesCannotStart: 2 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes",
		"RolledOut False RollingOut: 0 of 2 sandboxes are of the current revision and available")

	f.start(f.wantPooled(2)...)
	f.sync()
	f.reconcile()
	f.wantConditions("Available True SandboxesAvailable: ", "RolledOut True RolledOut: ")
	f.claim(f.wantPooled(2)[0])
	f.sync()
	f.pass(time.Minute)
	f.reconcile()
	f.wantConditions("Available True SandboxesAvailable: ", "RolledOut True RolledOut: ")
}
