// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// TestPoisonedSandboxesDoNotCount: where sandboxes are poisoned again and again, they are made anew at growing intervals,
// although their pods get ready.
func TestPoisonedSandboxesDoNotCount(t *testing.T) {
	p := pool{sandboxes: sandboxes(withoutToken("a", ""), starting("b"))}
	if got := p.count(current, epoch).outcome; got != (outcome{}) {
		t.Errorf("%+v", got)
	}
}

func TestCreateErrorMessage(t *testing.T) {
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
