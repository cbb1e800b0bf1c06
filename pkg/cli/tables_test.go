// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

func TestOutcome(t *testing.T) {
	ready := metav1.Condition{Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllReplicasClaimed}
	paused := metav1.Condition{Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: "SandboxPaused", Message: "Sandbox a is paused"}
	cases := map[string]struct {
		phase      v1alpha1.SandboxClaimPhase
		claimed    int32
		conditions []metav1.Condition
		wantEnded  bool
		wantErr    string
		wantState  string
		wantWords  string
	}{
		"not seen yet":       {wantState: stateWaiting, wantWords: "told"},
		"a part, and waits":  {phase: v1alpha1.SandboxClaimPhaseClaiming, claimed: 1, wantState: stateWaiting, wantWords: "told"},
		"nothing":            {phase: v1alpha1.SandboxClaimPhaseCompleted, wantEnded: true, wantErr: "sandboxclaim ns/run ended with 0/2 sandboxes: told", wantState: stateNone, wantWords: "told"},
		"a part":             {phase: v1alpha1.SandboxClaimPhaseCompleted, claimed: 1, wantEnded: true, wantErr: "ended with 1/2 sandboxes: told", wantState: statePartial, wantWords: "told"},
		"all":                {phase: v1alpha1.SandboxClaimPhaseCompleted, claimed: 2, conditions: []metav1.Condition{ready}, wantEnded: true, wantState: stateComplete, wantWords: "told"},
		"all, not ready":     {phase: v1alpha1.SandboxClaimPhaseCompleted, claimed: 2, conditions: []metav1.Condition{paused}, wantState: "SandboxPaused", wantWords: "Sandbox a is paused"},
		"all, not judged":    {phase: v1alpha1.SandboxClaimPhaseCompleted, claimed: 2, wantState: stateComplete, wantWords: "told"},
		"a part, ready lies": {phase: v1alpha1.SandboxClaimPhaseCompleted, claimed: 1, conditions: []metav1.Condition{ready}, wantEnded: true, wantErr: "1/2", wantState: statePartial, wantWords: "told"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			claim := testClaim("run", "pool", 2)
			claim.Status = v1alpha1.SandboxClaimStatus{Phase: tc.phase, ClaimedReplicas: tc.claimed, Conditions: tc.conditions, Message: "told"}
			ended, err := outcome(claim)
			if ended != tc.wantEnded || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("outcome is %t, %v", ended, err)
			}
			if got := stateOf(claim); got != tc.wantState {
				t.Errorf("state is %q, want %q", got, tc.wantState)
			}
			if got := words(claim); got != tc.wantWords {
				t.Errorf("words are %q, want %q", got, tc.wantWords)
			}
		})
	}
}

func TestHoldingsTable(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	two := testClaim("two", "pool", 2)
	two.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "ann"}
	two.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
	two.Status = v1alpha1.SandboxClaimStatus{
		Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 2, Message: "said \x1b[31mred",
		Sandboxes: []v1alpha1.ClaimedSandbox{{Name: "a", PodIPs: []string{"10.0.0.1", "fd00::1"}}, {Name: "b"}},
	}
	waits := testClaim("waits", "", 1)
	waits.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "template"}
	bound, outlived := testSandbox("a", "two"), testSandbox("c", "gone")
	outlived.Annotations[v1alpha1.AnnotationClaimedBy] = "bob"
	outlived.Labels[v1alpha1.LabelClaimedBy] = v1alpha1.ClaimedByLabel("bob")

	held := newHoldings([]*v1alpha1.SandboxClaim{two, waits}, []*v1alpha1.Sandbox{bound, outlived})

	want := "" +
		"NAMESPACE CLAIM STATUS CLAIMED SANDBOX IP CLAIMEDBY AGE POOL MESSAGE\n" +
		"ns two Complete 2/2 a 10.0.0.1 ann 60s pool said ^[[31mred\n" +
		"ns two Complete 2/2 b <none> ann 60s pool said ^[[31mred\n" +
		"ns waits Waiting 0/1 <none> <none> <none> <none> template <none>\n" +
		"ns gone ClaimGone <none> c 10.0.0.9 bob <none> pool <none>\n"
	if diff := cmp.Diff(want, printed(t, held.table(now, true))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if bobs := held.of("bob"); len(bobs.claims) != 0 || len(bobs.outlived) != 1 {
		t.Errorf("bob holds %+v", bobs)
	}
	if anns := held.of("ann"); len(anns.claims) != 1 || len(anns.outlived) != 0 {
		t.Errorf("ann holds %+v", anns)
	}
}

func TestTokensAreNotPrinted(t *testing.T) {
	sandbox := testSandbox("a", "gone")
	for _, key := range []string{v1alpha1.AnnotationRuntimeAccessToken, v1alpha1.AnnotationE2BEnvdAccessToken, v1alpha1.AnnotationInitRuntimeRequest} {
		sandbox.Annotations[key] = "s3cret"
	}
	text, err := yaml.Marshal(newHoldings(nil, []*v1alpha1.Sandbox{sandbox}).objects())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "s3cret") || !strings.Contains(string(text), "name: a") {
		t.Errorf("prints\n%s", text)
	}
	if sandbox.Annotations[v1alpha1.AnnotationRuntimeAccessToken] != "s3cret" {
		t.Error("the sandbox that was read was changed")
	}
}

func TestPools(t *testing.T) {
	set := func(name, template string, replicas, there, available int32, conditions ...metav1.Condition) *v1alpha1.SandboxSet {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		set.Spec.Replicas = &replicas
		if template != "" {
			set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
		}
		set.Status = v1alpha1.SandboxSetStatus{Replicas: there, AvailableReplicas: available, Conditions: conditions}
		return set
	}
	cannot := metav1.Condition{Type: v1alpha1.SetConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxesCannotStart,
		Message: "3 sandboxes of SandboxSet gpu cannot start: Unschedulable: no node"}
	fine := metav1.Condition{Type: v1alpha1.SetConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSandboxesAvailable, Message: "fine"}
	starting := metav1.Condition{Type: v1alpha1.SetConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxesStarting, Message: "starting"}
	refused := metav1.Condition{Type: v1alpha1.SetConditionReplicaFailure, Status: metav1.ConditionTrue, Reason: "FailedWrite", Message: "exceeded quota"}
	sets := []*v1alpha1.SandboxSet{
		set("cpu", "", 5, 5, 4, fine), set("gpu", "big", 3, 3, 0, cannot, refused), set("huge", "big", 0, 0, 0),
		set("new", "", 3, 0, 0, starting, refused), set("part", "", 3, 1, 1, fine, refused), set("slow", "", 1, 1, 0, starting),
	}
	done := testClaim("done", "cpu", 1)
	done.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	byTemplate := testClaim("template", "", 1)
	byTemplate.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "big"}
	elsewhere := testClaim("elsewhere", "cpu", 1)
	elsewhere.Namespace = "other"
	claims := []*v1alpha1.SandboxClaim{done, testClaim("waits", "cpu", 1), byTemplate, testClaim("name-of-template", "big", 1), elsewhere}
	claimed := map[types.NamespacedName]int{{Namespace: "ns", Name: "cpu"}: 7, {Namespace: "other", Name: "gpu"}: 9}

	pools := poolsOf(sets, claims, claimed)

	want := "" +
		"POOL WANTED AVAILABLE STARTING WAITING CLAIMS CLAIMED REASON MESSAGE\n" +
		"cpu 5 4 1 1 2 7 <none> <none>\n" +
		"gpu 3 0 3 2 2 0 SandboxesCannotStart 3 sandboxes of SandboxSet gpu cannot start: Unschedulable: no node\n" +
		"huge 0 0 0 2 2 0 <none> <none>\n" +
		"new 3 0 0 0 0 0 FailedWrite exceeded quota\n" +
		"part 3 1 0 0 0 0 FailedWrite exceeded quota\n" +
		"slow 1 0 1 0 0 0 SandboxesStarting starting\n"
	if diff := cmp.Diff(want, printed(t, poolTable(pools, true, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := printed(t, poolTable(pools[:1], false, true)); !strings.Contains(got, "ns cpu 5 4 1 1 2 <unknown>") {
		t.Errorf("without the right to list sandboxes:\n%s", got)
	}
}

func TestKeyTable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	records := []apikeys.Record{{ID: "0123456789abcdef", Name: "ci", CreatedAt: at}, {ID: "fedcba9876543210", Name: "\x1b[31mred", CreatedAt: at, CreatedBy: "0123456789abcdef"}}
	want := "" +
		"ID NAME CREATED BY\n" +
		"0123456789abcdef ci 2026-01-02T03:04:05Z <none>\n" +
		"fedcba9876543210 ^[[31mred 2026-01-02T03:04:05Z 0123456789abcdef\n"
	if diff := cmp.Diff(want, printed(t, keyTable(records))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func testClaim(name, pool string, replicas int32) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	claim.Spec.TemplateName, claim.Spec.Replicas = pool, &replicas
	return claim
}

func testSandbox(name, claim string) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		Labels:      map[string]string{v1alpha1.LabelClaimName: claim, v1alpha1.LabelSandboxPool: "pool"},
		Annotations: map[string]string{v1alpha1.AnnotationOwner: claim},
	}}
	sandbox.Status.PodInfo.PodIP = "10.0.0.9"
	return sandbox
}

// printed is a table as kubectl prints it, with one space between its columns.
func printed(t *testing.T, table *metav1.Table) string {
	t.Helper()
	var out bytes.Buffer
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(table, &out); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(out.String()) {
		lines.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return lines.String()
}
