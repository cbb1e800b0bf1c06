// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// TestEveryEditIsObserved: whatever state a sandbox has come to rest in, an edit queues it
// unless the API server has observed the edit, and the status and each condition reach the new
// generation.
func TestEveryEditIsObserved(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	start := time.Now().Truncate(time.Second)
	for name, prepare := range map[string]func(*v1alpha1.Sandbox){
		"running": func(*v1alpha1.Sandbox) {},
		"failed": func(s *v1alpha1.Sandbox) {
			s.Spec.Template = newSandbox("", FailImage).Spec.Template
		},
		"paused":   func(s *v1alpha1.Sandbox) { s.Spec.Paused = true },
		"retained": func(s *v1alpha1.Sandbox) { s.Spec.ShutdownPolicy = v1alpha1.ShutdownRetain },
		"waiting": func(s *v1alpha1.Sandbox) {
			s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "absent"}
		},
	} {
		for _, edit := range []string{"pauseTime", "shutdownTime", "service"} {
			t.Run(fmt.Sprintf("%s, %s", name, edit), func(t *testing.T) {
				sandbox := newSandbox(fmt.Sprintf("%s-%.5s", name, edit), "busybox")
				prepare(sandbox)
				if sandbox.Spec.ShutdownPolicy != "" {
					sandbox.Spec.ShutdownTime = new(metav1.NewTime(start.Add(-time.Hour)))
				}
				if err := api.Create(t.Context(), sandbox); err != nil {
					t.Fatal(err)
				}
				settleAt(t, api, sandbox, start.Add(time.Hour))
				before := sandbox.DeepCopy()
				later := new(metav1.NewTime(start.Add(24 * time.Hour)))
				switch edit {
				case "pauseTime":
					sandbox.Spec.PauseTime = later
				case "shutdownTime":
					sandbox.Spec.ShutdownTime = later
				default:
					sandbox.Spec.Service = new(false)
				}
				if err := api.Update(t.Context(), sandbox); err != nil {
					t.Fatal(err)
				}
				if queued(before, sandbox) == 0 && (edit == "service" || !claims.IsObserved(&sandbox.Status, sandbox.Generation)) {
					t.Errorf("the edit queues nothing: %+v", sandbox.Status)
				}
				settleAt(t, api, sandbox, start.Add(time.Hour))
				if !claims.IsObserved(&sandbox.Status, sandbox.Generation) || sandbox.Generation != before.Generation+1 {
					t.Errorf("generation %d is not observed: %+v", sandbox.Generation, sandbox.Status)
				}
			})
		}
	}
}

// settleAt lets the controllers take all steps that are due at a time, and reads the sandbox.
func settleAt(t *testing.T, api client.Client, sandbox *v1alpha1.Sandbox, at time.Time) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(at)
	for range 4 { // more than there are steps
		if _, err := New(api, &templates.Lookup{Cache: api, Server: api}, clock, Options{}).Reconcile(t.Context(), queue.RequestFor(sandbox)); err != nil {
			t.Fatal(err)
		}
		if _, err := NewExpiry(api, clock, 1).Reconcile(t.Context(), queue.RequestFor(sandbox)); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(sandbox), sandbox); err != nil {
		t.Fatal(err)
	}
}

// TestMovedShutdownTime: a sandbox that was kept at its shutdownTime runs again when the time
// is moved, as in a cluster, and is kept again when that time comes.
func TestMovedShutdownTime(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	start := time.Now().Truncate(time.Second)
	for name, paused := range map[string]bool{"runs": false, "paused": true} {
		sandbox := newSandbox("moved-"+name, "busybox")
		sandbox.Spec.Service, sandbox.Spec.ShutdownPolicy, sandbox.Spec.Paused = new(true), v1alpha1.ShutdownRetain, paused
		sandbox.Spec.ShutdownTime = new(metav1.NewTime(start.Add(time.Hour)))
		if err := api.Create(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		settleAt(t, api, sandbox, start.Add(2*time.Hour))
		if !v1alpha1.SandboxExpired(sandbox) {
			t.Fatalf("%s: it is not kept: %+v", name, sandbox.Status)
		}
		sandbox.Spec.ShutdownTime = new(metav1.NewTime(start.Add(4 * time.Hour)))
		if err := api.Update(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		settleAt(t, api, sandbox, start.Add(3*time.Hour))
		wantPhase := v1alpha1.SandboxRunning
		if paused {
			wantPhase = v1alpha1.SandboxPaused
		}
		if v1alpha1.SandboxExpired(sandbox) || sandbox.Status.Phase != wantPhase || sandbox.Status.ServiceFQDN == "" {
			t.Errorf("%s: after the time is moved: %+v", name, sandbox.Status)
		}
		settleAt(t, api, sandbox, start.Add(5*time.Hour))
		if !v1alpha1.SandboxExpired(sandbox) || sandbox.Status.ServiceFQDN != "" {
			t.Errorf("%s: when it comes again: %+v", name, sandbox.Status)
		}
	}
}

// TestServiceFollowsSpec: the status names the Service as long as the sandbox asks for one.
func TestServiceFollowsSpec(t *testing.T) {
	api := testutil.Start(t).RuntimeClient(t)
	at := time.Now().Add(time.Hour)
	sandbox := newSandbox("box", "busybox")
	if err := api.Create(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	settleAt(t, api, sandbox, at)
	for _, wanted := range []bool{true, false, true} {
		sandbox.Spec.Service = &wanted
		if err := api.Update(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		settleAt(t, api, sandbox, at)
		want := ""
		if wanted {
			want = "box.default.svc.cluster.local"
		}
		if sandbox.Status.ServiceFQDN != want {
			t.Errorf("service %t: %q, want %q", wanted, sandbox.Status.ServiceFQDN, want)
		}
	}
}

// TestImpossibleService: no step names a Service that a cluster could not make. The server
// refuses such a sandbox now, but one of an earlier version may be stored.
func TestImpossibleService(t *testing.T) {
	for name, want := range map[string]string{"box": "box.default.svc.cluster.local", "py3.12": "", strings.Repeat("x", 64): ""} {
		for _, s := range []step{start, pause, resumed, observe} {
			sandbox := newSandbox(name, "busybox")
			sandbox.Namespace, sandbox.Spec.Service = "default", new(true)
			status, err := statusAfter(s, sandbox, sandbox.Spec.Template, time.Unix(1, 0))
			if err != nil {
				t.Fatal(err)
			}
			if status.ServiceFQDN != want {
				t.Errorf("%s, step %d: %q, want %q", name, s, status.ServiceFQDN, want)
			}
		}
	}
}
