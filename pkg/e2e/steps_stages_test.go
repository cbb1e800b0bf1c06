// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/etcdtap"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

const (
	fourCores = `{"spec":{"containers":[{"image":"busybox","name":"main","resources":{"requests":{"cpu":"4"}}}]}}`
	twoCores  = `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}}`
)

// stage is a boundary between two steps of a claim of two sandboxes.
type stage struct {
	// name says how far the claim is when its server dies.
	name string
	// change makes the claim another one.
	change func(*v1alpha1.SandboxClaim)
	// resized: its sandboxes are too small. cold: there are none.
	resized, cold bool
	// txn decides about a transaction that writes the claim, as it is stored; first is
	// true for the first one.
	txn func(claim string, first bool) etcdtap.Verdict
	// call is what a runtime does with a call, until the server is killed, or for good.
	// It is the n-th of all the claim's runtimes.
	call    func(s *staged, rt *runtimetest.Runtime, n int64) runtimetest.Action
	forGood bool
	// reached returns nil when the claim is at its boundary.
	reached func(t *testing.T, s *staged, by *replicas.Replica) error
	// after, if set, does what the claim needs to continue, after the kill.
	after func(t *testing.T, s *staged, by *replicas.Replica)
}

var never = make(chan struct{})

// holds keeps the caller waiting, and does nothing.
func holds(*staged, *runtimetest.Runtime, int64) runtimetest.Action { return runtimetest.Hang(never) }

// lingers does all and keeps the caller waiting.
func lingers(*staged, *runtimetest.Runtime, int64) runtimetest.Action {
	return runtimetest.Action{Linger: never}
}

// secondHolds: one of two sandboxes is set up, and no other.
func secondHolds(s *staged, rt *runtimetest.Runtime, n int64) runtimetest.Action {
	for i := range s.ips {
		if other := s.runtime(i); other.Token() != "" && other != rt {
			return runtimetest.Hang(never)
		}
	}
	if n > 1 {
		return runtimetest.Answer(http.StatusServiceUnavailable) // until the first one is through
	}
	return runtimetest.Action{}
}

// firstRefuses: the one that is called first takes nothing, and all others hold.
func firstRefuses(_ *staged, _ *runtimetest.Runtime, n int64) runtimetest.Action {
	if n == 1 {
		return runtimetest.Answer(http.StatusBadRequest)
	}
	return runtimetest.Hang(never)
}

func isHeld(_ *testing.T, s *staged, _ *replicas.Replica) error {
	if !s.held.Load() {
		return fmt.Errorf("no transaction is held, after %d calls", s.called.Load())
	}
	return nil
}

// calledTimes waits for so many calls.
func calledTimes(n int64) func(*testing.T, *staged, *replicas.Replica) error {
	return func(_ *testing.T, s *staged, _ *replicas.Replica) error {
		if got := s.called.Load(); got < n {
			return fmt.Errorf("%d calls, want %d", got, n)
		}
		return nil
	}
}

// setUp waits until so many runtimes are set up.
func setUp(n int) func(*testing.T, *staged, *replicas.Replica) error {
	return func(_ *testing.T, s *staged, _ *replicas.Replica) error {
		got := 0
		for i := range s.ips {
			if s.runtime(i).Token() != "" {
				got++
			}
		}
		if got < n {
			return fmt.Errorf("%d runtimes are set up, want %d", got, n)
		}
		return nil
	}
}

func all(checks ...func(*testing.T, *staged, *replicas.Replica) error) func(*testing.T, *staged, *replicas.Replica) error {
	return func(t *testing.T, s *staged, by *replicas.Replica) error {
		for _, check := range checks {
			if err := check(t, s, by); err != nil {
				return err
			}
		}
		return nil
	}
}

// onTemplate claims by the template, whose sets are smaller.
func onTemplate(claim *v1alpha1.SandboxClaim) {
	claim.Spec.TemplateName, claim.Spec.SandboxTemplateRef = "", &v1alpha1.SandboxClaimTemplateRef{Name: claim.Name}
}

func isCompleted(claim string) bool {
	text, err := testutil.StoredJSON(claim)
	return err == nil && strings.Contains(text, `"phase":"Completed"`)
}

var stages = []stage{
	{
		name: "nothing is written",
		txn: func(_ string, first bool) etcdtap.Verdict {
			if first {
				return etcdtap.HoldBefore
			}
			return etcdtap.Pass
		},
		reached: isHeld,
	},
	{
		name: "it is bound, and its server was not told",
		txn: func(_ string, first bool) etcdtap.Verdict {
			if first {
				return etcdtap.HoldAfter
			}
			return etcdtap.Pass
		},
		reached: isHeld,
	},
	{name: "the runtimes have the calls", call: holds, reached: calledTimes(2)},
	{name: "the runtimes are set up and do not answer", call: lingers, reached: setUp(2)},
	{name: "one runtime of two is set up", call: secondHolds, reached: all(setUp(1), calledTimes(2))},
	{
		name: "one runtime of two is set up, all or nothing", call: secondHolds, reached: all(setUp(1), calledTimes(2)),
		change: func(claim *v1alpha1.SandboxClaim) { claim.Spec.Allocation = v1alpha1.AllocationAllOrNothing },
	},
	{
		name: "the runtimes are set up, and that is not written",
		txn: func(claim string, _ bool) etcdtap.Verdict {
			if isCompleted(claim) {
				return etcdtap.HoldBefore
			}
			return etcdtap.Pass
		},
		reached: all(isHeld, setUp(2)),
	},
	{
		name: "the runtimes are set up and that is written, and its server was not told",
		txn: func(claim string, _ bool) etcdtap.Verdict {
			if isCompleted(claim) {
				return etcdtap.HoldAfter
			}
			return etcdtap.Pass
		},
		reached: all(isHeld, setUp(2)),
	},
	{name: "one sandbox failed, and another has the call", call: firstRefuses, reached: calledTimes(3)},
	{
		name: "no runtime answers, and its time ends", call: holds, forGood: true, reached: calledTimes(2),
		after: func(t *testing.T, s *staged, by *replicas.Replica) {
			s.patchClaim(t, by, `{"spec":{"claimTimeout":"1s"}}`)
		},
	},
	{name: "the resize has begun", change: onTemplate, resized: true, reached: isResizing, after: resize},
	{
		name: "it is resized, and the runtimes have the calls", change: onTemplate, resized: true, call: holds,
		reached: func(t *testing.T, s *staged, by *replicas.Replica) error {
			if s.called.Load() == 0 && isResizing(t, s, by) == nil {
				resize(t, s, by)
			}
			return calledTimes(2)(t, s, by)
		},
	},
	{
		name: "its sandboxes are made, and not ready", cold: true, change: makes, reached: isMade, after: start,
	},
	{
		name: "its sandboxes are made and ready, and the runtimes have the calls", cold: true, change: makes, call: holds,
		reached: func(t *testing.T, s *staged, by *replicas.Replica) error {
			if s.called.Load() == 0 && isMade(t, s, by) == nil {
				start(t, s, by)
			}
			return calledTimes(2)(t, s, by)
		},
	},
}

func makes(claim *v1alpha1.SandboxClaim) { claim.Spec.CreateOnNoStock = nil }

// its are the sandboxes that name the claim.
func (s *staged) its(t *testing.T, by *replicas.Replica) []v1alpha1.Sandbox {
	t.Helper()
	list, err := by.Client.AgentsV1alpha1().Sandboxes(crashNamespace).
		List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + s.name})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// isResizing waits until both sandboxes are to be resized.
func isResizing(t *testing.T, s *staged, by *replicas.Replica) error {
	t.Helper()
	n := 0
	for _, sb := range s.its(t, by) {
		update := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
		if update != nil && update.Reason == v1alpha1.ReasonInplaceUpdating {
			n++
		}
	}
	if n < 2 {
		return fmt.Errorf("%d sandboxes are being resized", n)
	}
	return nil
}

// resize plays the controller of pods.
func resize(t *testing.T, s *staged, by *replicas.Replica) {
	t.Helper()
	for _, sb := range s.its(t, by) {
		status := sb.Status.DeepCopy()
		for condition, reason := range map[string]string{
			v1alpha1.SandboxConditionInplaceUpdate: v1alpha1.ReasonSucceeded, v1alpha1.SandboxConditionReady: v1alpha1.ReasonPodReady,
		} {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: condition, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: sb.Generation,
			})
		}
		status.ObservedGeneration = sb.Generation
		s.setStatus(t, by, &sb, *status)
	}
}

// isMade waits until both sandboxes are made.
func isMade(t *testing.T, s *staged, by *replicas.Replica) error {
	t.Helper()
	if n := len(s.its(t, by)); n < 2 {
		return fmt.Errorf("%d sandboxes are made", n)
	}
	return nil
}

// start plays the controller of pods.
func start(t *testing.T, s *staged, by *replicas.Replica) {
	t.Helper()
	for i, sb := range s.its(t, by) {
		status := testutil.ReadyStatus(i, time.Now())
		status.Conditions = append(status.Conditions, conditionsBeside(sb.Status.Conditions)...)
		status.SandboxIP, status.PodInfo.PodIP, status.PodInfo.PodUID = s.ips[i], s.ips[i], sb.UID
		s.setStatus(t, by, &sb, status)
	}
}

// conditionsBeside are those that are not the controller of pods' to write.
func conditionsBeside(conditions []metav1.Condition) []metav1.Condition {
	var others []metav1.Condition
	for _, condition := range conditions {
		if condition.Type != v1alpha1.SandboxConditionReady {
			others = append(others, condition)
		}
	}
	return others
}

func (s *staged) setStatus(t *testing.T, by *replicas.Replica, sb *v1alpha1.Sandbox, status v1alpha1.SandboxStatus) {
	t.Helper()
	sb = sb.DeepCopy()
	sb.Status = status
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := by.Client.AgentsV1alpha1().Sandboxes(crashNamespace).UpdateStatus(ctx, sb, metav1.UpdateOptions{})
		if err == nil {
			return nil
		}
		return fmt.Errorf("sandbox %s of %s: %w", sb.Name, s.stage.name, err)
	})
}
