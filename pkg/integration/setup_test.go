// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// setWithRuntime is a set whose sandboxes bring an agent-runtime.
func setWithRuntime(t *testing.T, s *testutil.Server, n int) *v1alpha1.SandboxSet {
	t.Helper()
	set := &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Name: "runtimes", Namespace: namespace},
		Spec:       v1alpha1.SandboxSetSpec{Replicas: new(int32(n))},
	}
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"spec":{"initContainers":[{"name":"runtime","image":"runtime"}],"containers":[{"name":"main","image":"busybox"}]}}`)}
	set, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// stockRuntimes adds sandboxes, each with a runtime of a fleet.
func stockRuntimes(t *testing.T, s *testutil.Server, set *v1alpha1.SandboxSet, fleet *runtimetest.Fleet, n int) map[string]*runtimetest.Runtime {
	t.Helper()
	all := map[string]*runtimetest.Runtime{}
	for _, name := range s.Stock(t, set, 0, n) {
		sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = fleet.Next()
		sb.Status.PodInfo.PodIP = all[name].IP
		setStatus(t, s, sb, sb.Status)
	}
	return all
}

func withEnvVars(c *v1alpha1.SandboxClaim) {
	c.Spec.EnvVars = map[string]string{"SECRET": "hush-hush"}
}

func TestClaimsSetUpRuntimes(t *testing.T) {
	s := start(t)
	set := setWithRuntime(t, s, 5)
	fleet := runtimetest.Start(t)
	all := stockRuntimes(t, s, set, fleet, 5)
	claim := create(t, s, testutil.Claim(set, "env", 3, both(waits, withEnvVars)))
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || claim.Status.ClaimedReplicas != 3 {
		t.Fatalf("answered %+v", claim.Status)
	}
	for _, sb := range owned(t, s, claim) {
		rt := all[sb.Name]
		if rt.Inits() != 1 || rt.Env()["SECRET"] != "hush-hush" || rt.Token() == "" {
			t.Errorf("%s: %d inits, %v", sb.Name, rt.Inits(), rt.Env())
		}
		if !meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized) || len(sb.OwnerReferences) > 0 {
			t.Errorf("%s counts as %+v", sb.Name, sb)
		}
		request := sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest]
		if whole := fmt.Sprint(sb); request == "" || strings.Contains(whole, "hush-hush") || strings.Contains(whole, rt.Token()) {
			t.Errorf("%s tells what is secret: %s", sb.Name, whole)
		}
	}
	checkInvariants(t, s)
}

// TestSetUpGoesOnAfterARestart: what was bound and not set up when a server stopped does
// not count before it is.
func TestSetUpGoesOnAfterARestart(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	set := setWithRuntime(t, s, 4)
	fleet := runtimetest.Start(t)
	hold := make(chan struct{})
	fleet.Script(func(*runtimetest.Runtime, runtimetest.Call) runtimetest.Action { return runtimetest.Action{Hold: hold} })
	all := stockRuntimes(t, s, set, fleet, 4)
	claim := create(t, s, testutil.Claim(set, "env", 4, both(waits, withEnvVars, timeout(expect.Patience))))
	if claim.Status.ClaimedReplicas != 0 || len(owned(t, s, claim)) != 4 {
		t.Fatalf("answered %+v", claim.Status)
	}
	s = restart(t, s)
	fleet.Script(nil)
	close(hold)
	if done := s.AwaitClaim(t, namespace, "env", testutil.Completed); done.Status.ClaimedReplicas != 4 || done.Status.FailedReplicas != 0 {
		t.Errorf("ends with %+v", done.Status)
	}
	for name, rt := range all {
		if rt.Inits() == 0 || rt.Env()["SECRET"] != "hush-hush" {
			t.Errorf("%s: %d inits, %v", name, rt.Inits(), rt.Env())
		}
	}
	checkInvariants(t, s)
}
