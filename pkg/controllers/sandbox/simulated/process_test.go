// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/controllers/templates"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// fakeProcesses are Processes of which only the UIDs exist.
type fakeProcesses struct {
	running map[types.NamespacedName]types.UID
	starts  int
	failure error
	onEnd   func(types.NamespacedName)
}

var _ Processes = (*fakeProcesses)(nil)

func (f *fakeProcesses) Start(_ context.Context, sandbox types.NamespacedName, uid types.UID, _ string) error {
	f.starts++
	if f.failure == nil {
		f.running[sandbox] = uid
	}
	return f.failure
}

func (f *fakeProcesses) Stop(sandbox types.NamespacedName, keep types.UID) error {
	if f.running[sandbox] != keep {
		delete(f.running, sandbox)
	}
	return nil
}

func (f *fakeProcesses) IsRunning(sandbox types.NamespacedName, uid types.UID) bool {
	return f.running[sandbox] == uid
}

func (f *fakeProcesses) OnEnd(call func(types.NamespacedName)) { f.onEnd = call }

// machine is a store with one sandbox and one template, with a controller whose sandboxes are processes.
type machine struct {
	*testing.T
	*Controller
	processes *fakeProcesses
	// sandbox is nil if it is gone.
	sandbox *v1alpha1.Sandbox
	// cached is an older version of it that reads get; nil if they get the sandbox.
	cached   *v1alpha1.Sandbox
	template *v1alpha1.SandboxTemplate
}

const bringsRuntime = `{"spec":{"initContainers":[{"name":"runtime"}],"containers":[{"name":"main"}]}}`

func newMachine(t *testing.T, change func(*v1alpha1.Sandbox)) *machine {
	m := &machine{T: t, processes: &fakeProcesses{running: map[types.NamespacedName]types.UID{}}, sandbox: newSandbox("box", "none")}
	m.template = builders.Template("brings")
	m.template.Namespace, m.template.Spec.Template = "default", &runtime.RawExtension{Raw: []byte(bringsRuntime)}
	m.sandbox.UID, m.sandbox.ResourceVersion, m.sandbox.Generation = "uid", "1", 1
	change(m.sandbox)
	c := interceptor.NewClient(nil, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			switch object := object.(type) {
			case *v1alpha1.Sandbox:
				if m.sandbox != nil {
					shown := m.sandbox
					if m.cached != nil {
						shown = m.cached
					}
					shown.DeepCopyInto(object)
					return nil
				}
			case *v1alpha1.SandboxTemplate:
				m.template.DeepCopyInto(object)
				return nil
			}
			return apierrors.NewNotFound(schema.GroupResource{}, "box")
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			if object.GetResourceVersion() != m.sandbox.ResourceVersion {
				return apierrors.NewConflict(schema.GroupResource{}, "box", errors.New("it has changed"))
			}
			patched, _ := object.(*v1alpha1.Sandbox)
			m.sandbox.Status = patched.Status
			m.sandbox.ResourceVersion += "1"
			return nil
		},
	})
	clk := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour)) // no start is waited for
	m.Controller = New(c, &templates.Lookup{Cache: c, Server: c}, clk, Options{Processes: m.processes})
	return m
}

func declaring(sandbox *v1alpha1.Sandbox) {
	sandbox.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
}

func (m *machine) reconcile() (reconcile.Result, error) {
	return m.Reconcile(m.Context(), reconcile.Request{NamespacedName: boxName})
}

var boxName = types.NamespacedName{Namespace: "default", Name: "box"}

// settle reconciles the sandbox until nothing changes any more.
func (m *machine) settle() {
	m.Helper()
	for before := ""; m.sandbox != nil && m.sandbox.ResourceVersion != before; {
		before = m.sandbox.ResourceVersion
		if _, err := m.reconcile(); err != nil {
			m.Fatal(err)
		}
	}
}

// expect checks the phase of the sandbox, whether its process runs, and how many were started for it.
func (m *machine) expect(phase v1alpha1.SandboxPhase, runs bool, starts int) {
	m.Helper()
	status := &m.sandbox.Status
	if status.Phase != phase || m.processes.IsRunning(boxName, m.sandbox.UID) != runs || m.processes.starts != starts {
		m.Errorf("it is %s, running %v after %d starts, want %s, %v after %d", status.Phase, m.processes.running, m.processes.starts, phase, runs, starts)
	}
	if hasAddress := status.SandboxIP != "" && status.PodInfo.PodIP != ""; runs != hasAddress {
		m.Errorf("its addresses are %q and %q", status.SandboxIP, status.PodInfo.PodIP)
	}
	if status.NodeName == ProcessNodeName != runs && phase != v1alpha1.SandboxFailed {
		m.Errorf("its node is %q", status.NodeName)
	}
	if isProcess := status.Message == processMessage; isProcess != (runs && phase == v1alpha1.SandboxRunning) {
		m.Errorf("its message is %q", status.Message)
	}
}

// TestWhichHaveProcesses: each sandbox has a process that declares an agent-runtime, whatever may give it a token. One that
// an earlier run without processes has started is lost, whose claims would find nothing.
func TestWhichHaveProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Sandbox)
		has    bool
	}{
		"names one": {declaring, true},
		"its template has one": {func(sandbox *v1alpha1.Sandbox) {
			sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(bringsRuntime)}
		}, true},
		"its reference has one": {func(sandbox *v1alpha1.Sandbox) {
			sandbox.Spec.Template, sandbox.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "brings"}
		}, true},
		"in a pool of agent-sandbox": {func(sandbox *v1alpha1.Sandbox) {
			declaring(sandbox)
			sandbox.OwnerReferences = []metav1.OwnerReference{{APIVersion: "extensions.agents.x-k8s.io/v1alpha1", Kind: "SandboxWarmPool", Name: "pool", Controller: new(true)}}
		}, true},
		"none": {func(*v1alpha1.Sandbox) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, test.change)
			m.settle()
			if test.has {
				m.expect(v1alpha1.SandboxRunning, true, 1)
			} else if m.sandbox.Status.Phase != v1alpha1.SandboxRunning || m.processes.starts != 0 || m.sandbox.Status.Message != runningMessage {
				t.Errorf("it is %+v", m.sandbox.Status)
			}

			clear(m.processes.running)
			m.sandbox.Status.Message = runningMessage
			if queues := m.hasStep(event.CreateEvent{Object: m.sandbox}); test.has && !queues {
				t.Error("one of an earlier run is not queued")
			}
			m.settle()
			if test.has {
				m.expect(v1alpha1.SandboxFailed, false, 1)
			} else if m.sandbox.Status.Phase != v1alpha1.SandboxRunning {
				t.Errorf("one of an earlier run is %+v", m.sandbox.Status)
			}
		})
	}
}

// TestProcessOfAPause: a pause ends the process, and a resume starts another one, once: a cache that is behind does not
// end one that may have its token already.
func TestProcessOfAPause(t *testing.T) {
	m := newMachine(t, func(sandbox *v1alpha1.Sandbox) {
		declaring(sandbox)
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationInitRuntimeRequest: "v1:sealed"}
	})
	m.settleBehind(1)
	m.expect(v1alpha1.SandboxRunning, true, 1)

	m.sandbox.Spec.Paused = true
	m.settle()
	m.expect(v1alpha1.SandboxPaused, false, 1)

	m.sandbox.Spec.Paused = false
	if _, err := m.reconcile(); err != nil {
		t.Fatal(err)
	}
	m.expect(v1alpha1.SandboxResuming, false, 1)
	m.settleBehind(2)
	m.expect(v1alpha1.SandboxResuming, true, 2)
}

// settleBehind reconciles the sandbox, whose process starts, again with what the cache had before.
func (m *machine) settleBehind(starts int) {
	m.Helper()
	m.cached = m.sandbox.DeepCopy()
	for range 2 {
		if _, err := m.reconcile(); err != nil {
			m.Fatal(err)
		}
	}
	if m.processes.starts != starts {
		m.Errorf("it was started %d times, want %d", m.processes.starts, starts)
	}
	m.cached = nil
	m.reconcileOnce()
}

func (m *machine) reconcileOnce() {
	m.Helper()
	if _, err := m.reconcile(); err != nil {
		m.Fatal(err)
	}
}

// TestRecycledProcess: a sandbox goes back to its pool without its process, and gets another one there.
func TestRecycledProcess(t *testing.T) {
	m := newMachine(t, declaring)
	m.settle()
	recycle.Begin(&m.sandbox.Status, 1, time.Now())
	m.reconcileOnce()
	m.expect(v1alpha1.SandboxRecycling, false, 1)
	m.enterPool()
	m.settleBehind(2)
	m.expect(v1alpha1.SandboxRunning, true, 2)
}

// enterPool does what the API server does to a sandbox that comes into the pool of a SandboxSet.
func (m *machine) enterPool() {
	m.sandbox.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", Controller: new(true)}}
	claims.BeginPoolSetup(m.sandbox, time.Now())
}

// TestProcessWithoutToken: no process in a pool stays that takes commands from all users of the machine.
func TestProcessWithoutToken(t *testing.T) {
	m := newMachine(t, declaring)
	m.enterPool()
	m.settle()
	m.expect(v1alpha1.SandboxRunning, true, 1)
	before := m.sandbox.DeepCopy()
	claims.DropPoolSetup(m.sandbox) // it has not answered in time
	var q counting
	if m.events().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: m.sandbox}, &q); q.added == 0 {
		t.Error("the change queues nothing")
	}
	m.settle()
	m.expect(v1alpha1.SandboxFailed, false, 1)
}

// TestProcessesOfDeletedSandboxes: the process of a sandbox ends with it, also if another one has its name by then.
func TestProcessesOfDeletedSandboxes(t *testing.T) {
	for name, change := range map[string]func(m *machine){
		"is gone":          func(m *machine) { m.sandbox = nil },
		"is being deleted": func(m *machine) { m.sandbox.DeletionTimestamp = new(metav1.Now()) },
		"is another one":   func(m *machine) { m.sandbox.UID, m.sandbox.Spec.Runtimes = "other", nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, declaring)
			m.settle()
			before := m.sandbox.DeepCopy()
			change(m)
			var q counting
			if m.sandbox == nil {
				m.events().Delete(t.Context(), event.DeleteEvent{Object: before}, &q)
			} else {
				m.events().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: m.sandbox}, &q)
			}
			if q.added == 0 {
				t.Error("the change queues nothing")
			}
			m.settle()
			m.reconcileOnce()
			if len(m.processes.running) != 0 {
				t.Errorf("%v still runs", m.processes.running)
			}
		})
	}
}

// TestProcessThatDoesNotStart is tried again, and the status says why.
func TestProcessThatDoesNotStart(t *testing.T) {
	m := newMachine(t, declaring)
	m.processes.failure = errors.New("no port")
	if _, err := m.reconcile(); !errors.Is(err, m.processes.failure) {
		t.Errorf("the error is %v, so that it is not tried again", err)
	}
	ready := meta.FindStatusCondition(m.sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready == nil || ready.Reason != v1alpha1.ReasonStartContainerFailed || m.sandbox.Status.Message != "no port" {
		t.Errorf("it is %+v", m.sandbox.Status)
	}
	m.processes.failure = nil
	m.settle()
	m.expect(v1alpha1.SandboxRunning, true, 2)
}

// TestProcessThatEnds: the end of a process queues its sandbox.
func TestProcessThatEnds(t *testing.T) {
	m := newMachine(t, declaring)
	m.settle()
	var q counting
	if err := m.runtimes.enqueueEnded(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	clear(m.processes.running)
	m.processes.onEnd(boxName)
	if q.added != 1 {
		t.Errorf("queued %d times", q.added)
	}
	m.settle()
	m.expect(v1alpha1.SandboxFailed, false, 1)
}
