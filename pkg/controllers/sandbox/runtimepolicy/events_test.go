// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimepolicy

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

const (
	without     = `{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`
	withRuntime = `{"spec":{"initContainers":[{"name":"runtime","image":"envd:1"}],"containers":[{"name":"main","image":"busybox:1"}]}}`
)

func rawOf(pod string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(pod)} }

func sandboxOf(pod string) *v1alpha1.Sandbox {
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box", UID: "u", Generation: 1}}
	sandbox.Spec.Template = rawOf(pod)
	return sandbox
}

func referringTo(template string) *v1alpha1.Sandbox {
	sandbox := sandboxOf("")
	sandbox.Spec.Template, sandbox.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: template}
	return sandbox
}

func naming(sandbox *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	sandbox.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	return sandbox
}

// queued notes what is queued.
type queued struct {
	queue.Interface
	now, later int
}

func (q *queued) Add(reconcile.Request) { q.now++ }

func (q *queued) AddAfter(_ reconcile.Request, after time.Duration) {
	if after == grace {
		q.later++
	}
}

// TestSandboxEvents: a namespace is queued at the first sandbox of each kind, before it has a
// pod, and a while after the last one, and not for those in between.
func TestSandboxEvents(t *testing.T) {
	c, q := controllerOf(&answers{}, &answers{}, Options{}), &queued{}
	handler, at := c.sandboxEvents(), map[string]*v1alpha1.Sandbox{}
	for i, step := range []struct {
		name       string
		now        *v1alpha1.Sandbox // nil: it is deleted
		soon, late int
	}{
		{"plain", sandboxOf(without), 0, 0},
		{"a", sandboxOf(withRuntime), 1, 0},
		{"b", naming(sandboxOf(without)), 0, 0},
		{"c", referringTo("brings"), 1, 0},
		{"d", referringTo("brings"), 0, 0},
		{"e", referringTo("plain"), 1, 0},
		{"a", nil, 0, 0},
		{"c", nil, 0, 0},
		{"d", nil, 0, 1},
		{"b", sandboxOf(without), 0, 1}, // it is changed
		{"b", sandboxOf(withRuntime), 1, 0},
		{"b", referringTo("plain"), 0, 1},
		{"plain", nil, 0, 0},
		{"b", nil, 0, 0},
		{"e", nil, 0, 1},
	} {
		*q = queued{}
		before := at[step.name]
		switch {
		case step.now == nil:
			handler.Delete(t.Context(), event.DeleteEvent{Object: before}, q)
			delete(at, step.name)
		case before == nil:
			step.now.Name = step.name
			handler.Create(t.Context(), event.CreateEvent{Object: step.now}, q)
			at[step.name] = step.now
		default:
			step.now.Name, step.now.Generation = step.name, before.Generation+1
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: step.now}, q)
			at[step.name] = step.now
		}
		if diff := cmp.Diff([]int{step.soon, step.late}, []int{q.now, q.later}); diff != "" {
			t.Errorf("%d, %s: queued at once and later (-want +got):\n%s", i, step.name, diff)
		}
	}
	if got := fmt.Sprint(len(c.sandboxes.groups), len(c.sandboxes.of)); got != "0 0" {
		t.Errorf("left behind: %s", got)
	}
}

// TestStatusEvents: what happens to a sandbox that keeps its spec costs nothing.
func TestStatusEvents(t *testing.T) {
	c, q := controllerOf(&answers{}, &answers{}, Options{}), &queued{}
	before, after := sandboxOf(without), sandboxOf(withRuntime) // which is not looked at
	c.sandboxEvents().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	if has, examples := c.sandboxes.in("team"); has || len(examples) > 0 || q.now > 0 {
		t.Errorf("%v, %v, %d", has, examples, q.now)
	}
}
