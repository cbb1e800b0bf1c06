// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

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
	rules "github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// resumes says of a sandbox what is said when it runs again, with another runtime. No cluster has a
// Pod of it, so the address alone is another one.
func resumes(t *testing.T, s *testutil.Server, name string, rt *runtimetest.Runtime) {
	t.Helper()
	sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := *sb.Status.DeepCopy()
	status.Phase = v1alpha1.SandboxResuming
	status.PodInfo.PodIP, status.SandboxIP = rt.IP, rt.IP
	rules.BeginSetupAgain(sb, &status, time.Now())
	if !rules.SetupPending(&status) {
		t.Fatalf("%s waits for nothing: %v", name, sb.Annotations)
	}
	setStatus(t, s, sb, status)
}

// setUpAgain waits until a server has said how it went.
func setUpAgain(t *testing.T, s *testutil.Server, name string) *metav1.Condition {
	t.Helper()
	var c *metav1.Condition
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		sb, err := sandboxes(s).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if rules.SetupPending(&sb.Status) {
			return fmt.Errorf("%s is not set up: %+v", name, sb.Status.Conditions)
		}
		if sb.Status.Phase != v1alpha1.SandboxResuming {
			t.Errorf("a server made %s %s", name, sb.Status.Phase)
		}
		c = meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
		return nil
	})
	return c
}

// TestResumedRuntimesAreSetUpAgain: with the environment and the token of the claim, also
// when that is gone.
func TestResumedRuntimesAreSetUpAgain(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1)
	claim := create(t, s, testutil.Claim(set, "env", 1, asks))
	isSetUp(t, fleet, claim, 1)
	first, name := runtimesOf(t, fleet, claim)[0], claim.Status.Sandboxes[0].Name
	for _, delete := range []bool{false, true} {
		if delete {
			if err := s.Client.AgentsV1alpha1().SandboxClaims(namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		next := fleet.Next()
		resumes(t, s, name, next)
		if c := setUpAgain(t, s, name); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonSucceeded {
			t.Errorf("told %+v", c)
		}
		if next.Token() != first.Token() || fmt.Sprint(next.Env()) != fmt.Sprint(first.Env()) || next.Inits() != 1 {
			t.Errorf("the new runtime has %v, token %s, after %d calls", next.Env(), next.Token(), next.Inits())
		}
	}
	if first.Inits() != 1 {
		t.Error("the runtime of the pod before was called")
	}
}

// TestRestartedRuntimesAreSetUpAgain: with the environment and the token of the claim, as often as a
// container is restarted. One that another caller was quicker to initialize is not used.
func TestRestartedRuntimesAreSetUpAgain(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1)
	claim := create(t, s, testutil.Claim(set, "env", 1, asks))
	isSetUp(t, fleet, claim, 1)
	rt, name := runtimesOf(t, fleet, claim)[0], claim.Status.Sandboxes[0].Name
	token, env := rt.Token(), rt.Env()
	restarts := func(count int32) *metav1.Condition {
		t.Helper()
		sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		status := *sb.Status.DeepCopy()
		status.PodInfo.RestartCount = &count
		rules.BeginSetupAgain(sb, &status, time.Now())
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRuntimeRestarted,
		})
		setStatus(t, s, sb, status)
		var c *metav1.Condition
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			sb, err := sandboxes(s).Get(ctx, name, metav1.GetOptions{})
			if err == nil && rules.SetupPending(&sb.Status) {
				err = fmt.Errorf("%s is not set up: %+v", name, sb.Status.Conditions)
			}
			if err == nil {
				c = meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
			}
			return err
		})
		return c
	}
	for count := range int32(2) {
		rt.Reset()
		if c := restarts(count + 1); c.Status != metav1.ConditionTrue || rt.Token() != token || fmt.Sprint(rt.Env()) != fmt.Sprint(env) {
			t.Errorf("after restart %d: %+v, token %s, environment %v", count+1, c, rt.Token(), rt.Env())
		}
	}
	rt.Reset()
	rt.SetToken("another-caller's")
	if c := restarts(3); c.Reason != v1alpha1.ReasonFailed || !strings.Contains(c.Message, "401") {
		t.Errorf("another caller was first: %+v", c)
	}
}

// TestRestartedRuntimesAreNotReached: through sandboxes/proxy, also before the restart is in the status of
// the sandbox.
func TestRestartedRuntimesAreNotReached(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1)
	claim := create(t, s, testutil.Claim(set, "env", 1, asks))
	isSetUp(t, fleet, claim, 1)
	rt, name := runtimesOf(t, fleet, claim)[0], claim.Status.Sandboxes[0].Name
	token := rt.Token()
	commands := func() int {
		t.Helper()
		result := s.Client.AgentsV1alpha1().RESTClient().Post().Namespace(namespace).Resource("sandboxes").Name(name).
			SubResource("proxy").Suffix(fmt.Sprint(runtimetest.Port), "command").SetHeader("X-Access-Token", token).Do(t.Context())
		code := 0
		if result.StatusCode(&code); code == 0 {
			t.Fatal(result.Error())
		}
		return code
	}
	const served = http.StatusNotFound // the runtime knows no such command
	if code := commands(); code != served {
		t.Fatalf("the runtime is not reached: %d", code)
	}
	fleet.Drop(rt.IP)
	restarted := fleet.At(rt.IP)
	for range 3 {
		if code := commands(); code != http.StatusServiceUnavailable {
			t.Errorf("a runtime without a token is reached: %d", code)
		}
	}
	for _, call := range restarted.Calls() {
		if call.Method != http.MethodGet || call.Path != "/envs" || call.Header.Get("X-Access-Token") != "" {
			t.Errorf("a runtime without a token got %+v", call)
		}
	}
	restarted.SetToken(token)
	if code := commands(); code != served {
		t.Errorf("the runtime is not reached when it has its token again: %d", code)
	}
}

// TestResumeWhereARuntimeHasAToken: the pod is new, so another caller has set the token.
func TestResumeWhereARuntimeHasAToken(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1)
	claim := create(t, s, testutil.Claim(set, "env", 1, asks))
	isSetUp(t, fleet, claim, 1)
	next := fleet.Next()
	next.SetToken("somebody-elses")
	resumes(t, s, claim.Status.Sandboxes[0].Name, next)
	if c := setUpAgain(t, s, claim.Status.Sandboxes[0].Name); c.Reason != v1alpha1.ReasonFailed || !strings.Contains(c.Message, "401") {
		t.Errorf("told %+v", c)
	}
}

// TestResumeWithAForeignRequest: what was sealed for another claim is not opened, and the
// sandbox does not wait for it.
func TestResumeWithAForeignRequest(t *testing.T) {
	s, set, fleet := withRuntimes(t, 2)
	victim, thief := create(t, s, testutil.Claim(set, "victim", 1, asks)), create(t, s, testutil.Claim(set, "thief", 1, asks))
	isSetUp(t, fleet, victim, 1)
	isSetUp(t, fleet, thief, 1)
	from, to := owned(t, s, victim)[0], owned(t, s, thief)[0]
	to.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = from.Annotations[v1alpha1.AnnotationInitRuntimeRequest]
	if _, err := sandboxes(s).Update(t.Context(), &to, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	next := fleet.Next()
	resumes(t, s, to.Name, next)
	c := setUpAgain(t, s, to.Name)
	if c.Reason != v1alpha1.ReasonFailed || !strings.Contains(c.Message, "was not made for this claim") || len(next.Calls()) != 0 {
		t.Errorf("told %+v after %d calls", c, len(next.Calls()))
	}
}

// TestResumeGoesOnAfterARestart: what was not told when a server stopped, another tells.
func TestResumeGoesOnAfterARestart(t *testing.T) {
	s, set, fleet := withRuntimes(t, 1)
	claim := create(t, s, testutil.Claim(set, "env", 1, asks))
	isSetUp(t, fleet, claim, 1)
	name, next, hold := claim.Status.Sandboxes[0].Name, fleet.Next(), make(chan struct{})
	next.Act(runtimetest.Hang(hold), 1)
	resumes(t, s, name, next)
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if len(next.Calls()) == 0 {
			return fmt.Errorf("not called")
		}
		return nil
	})
	s = restart(t, s)
	close(hold)
	if c := setUpAgain(t, s, name); c.Status != metav1.ConditionTrue || next.Token() != runtimesOf(t, fleet, claim)[0].Token() {
		t.Errorf("told %+v", c)
	}
}
