// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// The namespaces of what is made: objects in the states that they may be in for long, and
// one of each kind with every field, which mean nothing together.
const (
	states     = "states"
	everyField = "every-field"
)

// Times that do not come while a store is kept.
var (
	later  = metav1.NewTime(time.Date(2126, time.January, 1, 0, 0, 0, 0, time.UTC))
	sooner = metav1.NewTime(later.Add(-24 * time.Hour))
)

// fill makes what a release has to keep, except for what is encrypted.
func fill(t *testing.T, s *testutil.Server) {
	t.Helper()
	fillSandboxes(t, s)
	fillClaims(t, s)
	fillAgentSandbox(t, s)
	fillEveryField(t, s)
}

// fillSandboxes makes pools, and sandboxes outside of them.
func fillSandboxes(t *testing.T, s *testutil.Server) {
	t.Helper()
	template := s.Template(t, states, "base")
	patched := s.SetOf(t, template, "patched", `{"metadata":{"labels":{"patched":"yes"}}}`, 2)
	s.Stock(t, patched, 0, 2)
	s.Stock(t, s.Set(t, states, "pool", 12), 0, 12)
	s.Stock(t, s.Set(t, states, "short", 1), 0, 1)
	s.Set(t, states, "line", 0)

	ready := testutil.ReadyStatus(60000, later.Add(-time.Hour))
	for name, change := range map[string]func(*v1alpha1.Sandbox){
		"starting": func(*v1alpha1.Sandbox) {},
		"running":  func(sb *v1alpha1.Sandbox) { sb.Status = ready },
		"ending": func(sb *v1alpha1.Sandbox) {
			sb.Spec.ShutdownTime, sb.Spec.PauseTime = &later, &sooner
			sb.Status = ready
		},
		"failed": func(sb *v1alpha1.Sandbox) {
			sb.Status = v1alpha1.SandboxStatus{ObservedGeneration: 1, Phase: v1alpha1.SandboxFailed, Message: "the pod failed"}
		},
		"paused": func(sb *v1alpha1.Sandbox) {
			sb.Spec.Paused = true
			sb.Status = v1alpha1.SandboxStatus{ObservedGeneration: 1, Phase: v1alpha1.SandboxPaused}
		},
	} {
		sandbox := builders.Sandbox(name)
		change(sandbox)
		makeSandbox(t, s, states, sandbox)
	}
}

// makeSandbox creates a sandbox with its status.
func makeSandbox(t *testing.T, s *testutil.Server, namespace string, sandbox *v1alpha1.Sandbox) {
	t.Helper()
	client := s.Client.AgentsV1alpha1().Sandboxes(namespace)
	made, err := client.Create(t.Context(), sandbox, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating sandbox %s: %v", sandbox.Name, err)
	}
	if sandbox.Status.Phase == "" {
		return
	}
	made.Status = sandbox.Status
	if _, err := client.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("the status of sandbox %s: %v", sandbox.Name, err)
	}
}

// fillClaims makes claims that are Completed, and some that wait: for stock that is not
// there, for the rest of it, and for sandboxes that are being made for them.
func fillClaims(t *testing.T, s *testutil.Server) {
	t.Helper()
	open := builders.Template("open")
	open.Spec.EnvVarsInjectionPolicy = v1alpha1.InjectionAllowed
	if _, err := s.Client.AgentsV1alpha1().SandboxTemplates(states).Create(t.Context(), open, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, made := range map[string]struct {
		replicas  int32
		change    func(*v1alpha1.SandboxClaimSpec)
		completed bool
	}{
		"one":     {replicas: 1, change: func(*v1alpha1.SandboxClaimSpec) {}, completed: true},
		"patched": {replicas: 1, change: func(spec *v1alpha1.SandboxClaimSpec) { spec.TemplateName = "base" }, completed: true},
		"owning": {replicas: 3, change: func(spec *v1alpha1.SandboxClaimSpec) {
			spec.Allocation, spec.ReclaimPolicy = v1alpha1.AllocationAllOrNothing, v1alpha1.ReclaimDelete
			spec.Labels, spec.Annotations = map[string]string{"team": "a"}, map[string]string{"example.com/job": "7"}
			spec.ShutdownTime, spec.PauseTime = &later, &sooner
		}, completed: true},
		"lasting": {replicas: 2, change: func(spec *v1alpha1.SandboxClaimSpec) {
			spec.OnShortage = v1alpha1.ShortageFail
			spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{
				ShutdownTime: &later, TTLSecondsAfterFinished: new(int32(60)), ShutdownPolicy: v1alpha1.ShutdownDeleteForeground,
			}
			spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{Labels: map[string]string{"tier": "b"}}
		}, completed: true},
		"too-late": {replicas: 1, change: func(spec *v1alpha1.SandboxClaimSpec) {
			spec.TemplateName, spec.ClaimTimeout = "line", &metav1.Duration{Duration: time.Second}
		}, completed: true},
		"waiting": {replicas: 2, change: func(spec *v1alpha1.SandboxClaimSpec) { spec.TemplateName = "line" }},
		"together": {replicas: 3, change: func(spec *v1alpha1.SandboxClaimSpec) {
			spec.TemplateName, spec.Allocation = "line", v1alpha1.AllocationAllOrNothing
		}},
		"short": {replicas: 3, change: func(spec *v1alpha1.SandboxClaimSpec) { spec.TemplateName = "short" }},
		"making": {replicas: 2, change: func(spec *v1alpha1.SandboxClaimSpec) {
			spec.TemplateName, spec.SandboxTemplateRef = "", &v1alpha1.SandboxClaimTemplateRef{Name: "open"}
			spec.CreateOnNoStock = new(true)
			spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d", ContainerName: "main"}}
			spec.AdditionalPodMetadata = &v1alpha1.PodMetadata{
				Labels: map[string]string{"tier": "b"}, Annotations: map[string]string{"example.com/note": "c"},
			}
		}},
	} {
		claim := builders.Claim(name, made.replicas)
		keepWaiting(claim)
		claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
		made.change(&claim.Spec)
		makeClaim(t, s, states, claim, made.completed)
	}
}

// keepWaiting lets a claim and what is made for it wait for as long as its store is kept.
func keepWaiting(claim *v1alpha1.SandboxClaim) {
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: century}
	claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: century}
}

// makeClaim creates a claim, and waits until it is Completed or, if it is to be unfinished,
// has what it can have.
func makeClaim(t *testing.T, s *testutil.Server, namespace string, claim *v1alpha1.SandboxClaim, completed bool) {
	t.Helper()
	if _, err := s.CreateOnce(t.Context(), namespace, claim); err != nil {
		t.Fatalf("creating claim %s: %v", claim.Name, err)
	}
	check := testutil.Completed
	if !completed {
		check = func(claim *v1alpha1.SandboxClaim) string {
			if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming {
				return "not Claiming"
			}
			return ""
		}
	}
	s.AwaitClaim(t, namespace, claim.Name, check)
}

// fillAgentSandbox makes one of each kind in the words of agent-sandbox.
func fillAgentSandbox(t *testing.T, s *testutil.Server) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	podTemplate := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "busybox:1"}}}}
	for _, object := range []struct {
		group, resource, kind string
		spec                  map[string]any
	}{
		{v1alpha1.ExtensionsGroup, "sandboxtemplates", "SandboxTemplate", map[string]any{"podTemplate": podTemplate}},
		{v1alpha1.ExtensionsGroup, "sandboxwarmpools", "SandboxWarmPool", map[string]any{
			"replicas": int64(2), "sandboxTemplateRef": map[string]any{"name": "agent"},
		}},
		{v1alpha1.ExtensionsGroup, "sandboxclaims", "SandboxClaim", map[string]any{"warmPoolRef": map[string]any{"name": "patched"}}},
		{v1alpha1.AgentsGroup, "sandboxes", "Sandbox", map[string]any{"podTemplate": podTemplate}},
	} {
		gvr := v1alpha1.SchemeGroupVersion.WithResource(object.resource)
		gvr.Group, gvr.Version = object.group, "v1beta1"
		_, err := client.Resource(gvr).Namespace(states).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": object.kind, "metadata": map[string]any{"name": "agent"}, "spec": object.spec,
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("creating %s: %v", object.kind, err)
		}
	}
}

// fillEncrypted makes one of each kind in a store that is encrypted at rest.
func fillEncrypted(t *testing.T, s *testutil.Server) {
	t.Helper()
	const namespace = "secrets"
	s.Template(t, namespace, "base")
	s.Set(t, namespace, "pool", 0)
	running := builders.Sandbox("running")
	running.Status = testutil.ReadyStatus(60001, later.Add(-time.Hour))
	makeSandbox(t, s, namespace, running)
	claim := builders.Claim("making", 1)
	claim.Spec.CreateOnNoStock = new(true)
	keepWaiting(claim)
	claim.Spec.Labels = map[string]string{"team": "secret"}
	makeClaim(t, s, namespace, claim, false)
}
