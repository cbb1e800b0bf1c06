// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// inAgents makes a sandbox one of agent-sandbox.
func inAgents(s *v1alpha1.Sandbox) {
	s.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
}

func due(at time.Time) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = new(metav1.NewTime(at)) }
}

func policy(p v1alpha1.ShutdownPolicy) func(*v1alpha1.Sandbox) {
	return func(s *v1alpha1.Sandbox) { s.Spec.ShutdownPolicy = p }
}

func watch(pod *corev1.Pod, sure bool, changes ...func(*v1alpha1.Sandbox)) *observation {
	return &observation{sandbox: newSandbox(changes...), revision: revision, pod: pod, isFromServer: sure, now: now}
}

// seen is a condition in the words of agent-sandbox of a sandbox with the status of a plan.
func seen(t *testing.T, o *observation, p plan, kind string) metav1.Condition {
	t.Helper()
	sandbox := *o.sandbox
	sandbox.Status = p.status
	c := meta.FindStatusCondition(v1beta1.ConditionsOf(&sandbox), kind)
	if c == nil {
		t.Fatalf("there is no condition %s", kind)
	}
	return *c
}

var (
	podIsReady  = cond(v1alpha1.SandboxConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPodReady, "")
	pauseIsDone = cond(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed, "")
)

// A sandbox of agent-sandbox whose pod is deleted gets another one; one of ours has failed.
func TestAnotherPod(t *testing.T) {
	running := []func(*v1alpha1.Sandbox){phase(v1alpha1.SandboxRunning), held(podIsReady), addressed}
	ours := decide(watch(nil, true, running...))
	if ours.status.Phase != v1alpha1.SandboxFailed {
		t.Errorf("ours is %s", ours.status.Phase)
	}
	running = append(running, inAgents)
	if p := decide(watch(nil, false, running...)); p.action != actionReadFromServer {
		t.Errorf("a cache is believed: action %v", p.action)
	}
	o := watch(nil, true, running...)
	p := decide(o)
	if p.action != actionCreate || p.status.Phase != v1alpha1.SandboxResuming || p.status.SandboxIP != "" || p.status.PodInfo.PodUID != "" || p.podNameAction != dropPodName {
		t.Errorf("without a pod: action %v, pod name %v, status %+v", p.action, p.podNameAction, p.status)
	}
	o = watch(newPod(runs(corev1.ConditionTrue), terminating), false, running...)
	p = decide(o)
	if p.action != actionNone || p.status.Phase != v1alpha1.SandboxResuming || p.status.SandboxIP != "" {
		t.Errorf("while it goes: action %v, status %+v", p.action, p.status)
	}
	if c := seen(t, o, p, v1beta1.ConditionReady); c.Status != metav1.ConditionFalse || c.Message != "Pod does not exist" {
		t.Errorf("Ready is %+v", c)
	}
	if c := seen(t, o, p, v1beta1.ConditionSuspended); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonNotSuspended {
		t.Errorf("Suspended is %+v", c)
	}
	// The kubelet ends what is deleted: that is no end of the sandbox.
	o = watch(newPod(podPhase(corev1.PodFailed), terminating), false, append(running, func(s *v1alpha1.Sandbox) { s.Status = p.status })...)
	if q := decide(o); q.status.Phase != v1alpha1.SandboxResuming {
		t.Errorf("while the kubelet ends it: %s", q.status.Phase)
	}
	o = watch(newPod(runs(corev1.ConditionTrue), second), false, append(running, func(s *v1alpha1.Sandbox) { s.Status = p.status })...)
	q := decide(o)
	if q.status.Phase != v1alpha1.SandboxRunning || q.podNameAction != setPodName || meta.FindStatusCondition(q.status.Conditions, v1alpha1.SandboxConditionResumed) != nil {
		t.Errorf("with the new one: pod name %v, status %+v", q.podNameAction, q.status)
	}
}

// Suspended says each time when.
func TestSuspendAndResume(t *testing.T) {
	o := watch(nil, true, inAgents, paused, phase(v1alpha1.SandboxPaused))
	p := decide(o)
	if p.podNameAction != dropPodName {
		t.Errorf("pod name %v", p.podNameAction)
	}
	was := seen(t, o, p, v1beta1.ConditionSuspended)
	if was.Status != metav1.ConditionTrue || was.Reason != v1alpha1.ReasonPodTerminated {
		t.Fatalf("Suspended is %+v", was)
	}
	for range 3 { // all in one second
		o = watch(nil, true, inAgents, func(s *v1alpha1.Sandbox) { s.Status = p.status })
		o.sandbox.Spec.Paused = was.Status == metav1.ConditionFalse
		if o.sandbox.Spec.Paused {
			o.sandbox.Status.Phase = v1alpha1.SandboxRunning
		}
		p = decide(o)
		is := seen(t, o, p, v1beta1.ConditionSuspended)
		if is.Status == was.Status || !is.LastTransitionTime.After(was.LastTransitionTime.Time) {
			t.Fatalf("from %+v to %+v", was, is)
		}
		was = is
	}
}

func TestStrangersPodKeepsFromSuspending(t *testing.T) {
	stranger := newPod(foreign)
	o := watch(stranger, true, inAgents, paused, phase(v1alpha1.SandboxPaused))
	p := decide(o)
	if p.action != actionNone || p.requeueAfter == 0 {
		t.Errorf("action %v, again after %v", p.action, p.requeueAfter)
	}
	if c := seen(t, o, p, v1beta1.ConditionSuspended); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonPodNotOwned {
		t.Errorf("Suspended is %+v", c)
	}
	if ours := decide(watch(stranger, true, paused, phase(v1alpha1.SandboxPaused))); !isTrue(ours.status.Conditions, v1alpha1.SandboxConditionPaused) {
		t.Error("one of ours is not paused")
	}
}

// A sandbox of agent-sandbox that has ended can be suspended, and gets another pod when it
// is resumed.
func TestSuspendAfterTheEnd(t *testing.T) {
	p := decide(watch(newPod(podPhase(corev1.PodFailed)), false, inAgents, paused, phase(v1alpha1.SandboxFailed), addressed))
	if p.action != actionRemove || p.status.Phase != v1alpha1.SandboxPaused {
		t.Errorf("action %v, phase %s", p.action, p.status.Phase)
	}
	if ours := decide(watch(newPod(podPhase(corev1.PodFailed)), false, paused, phase(v1alpha1.SandboxFailed))); ours.action != actionNone {
		t.Errorf("ours: action %v", ours.action)
	}
}

func TestKeptPastTheEnd(t *testing.T) {
	running := func(more ...func(*v1alpha1.Sandbox)) []func(*v1alpha1.Sandbox) {
		return append([]func(*v1alpha1.Sandbox){phase(v1alpha1.SandboxRunning), held(podIsReady), addressed}, more...)
	}
	pod := newPod(runs(corev1.ConditionTrue))
	for name, test := range map[string]struct {
		changes []func(*v1alpha1.Sandbox)
		expired bool
		again   bool
	}{
		"kept":                   {running(due(now), policy(v1alpha1.ShutdownRetain)), true, false},
		"kept by default":        {running(due(now), inAgents), true, false},
		"deleted":                {running(due(now), inAgents, policy(v1alpha1.ShutdownDelete)), false, false},
		"deleted by default":     {running(due(now)), false, false},
		"kept, its time to come": {running(due(now.Add(time.Second)), inAgents), false, true},
	} {
		o := watch(pod, false, test.changes...)
		p := decide(o)
		if expired := p.action == actionRemove; expired != test.expired || (p.requeueAfter > 0) != test.again {
			t.Errorf("%s: action %v, again after %v", name, p.action, p.requeueAfter)
		}
		if test.expired {
			if c := seen(t, o, p, v1beta1.ConditionReady); c.Reason != v1alpha1.ReasonSandboxExpired {
				t.Errorf("%s: Ready is %+v", name, c)
			}
		}
	}
}

// An expired sandbox that has ended stays in its phase; one whose time is moved continues.
func TestExpiredSandboxes(t *testing.T) {
	ended := watch(newPod(podPhase(corev1.PodSucceeded)), false, inAgents, due(now), phase(v1alpha1.SandboxRunning), addressed, held(podIsReady))
	ended.sandbox.Spec.ShutdownTime = nil
	p := decide(ended)
	finished := seen(t, ended, p, v1beta1.ConditionFinished)
	ended.sandbox.Spec.ShutdownTime, ended.sandbox.Status, ended.now = new(metav1.NewTime(now)), p.status, now.Add(time.Hour)
	if p = decide(ended); p.action != actionRemove || p.status.Phase != v1alpha1.SandboxSucceeded {
		t.Errorf("ended: action %v, phase %s", p.action, p.status.Phase)
	}
	ended.sandbox.Status, ended.pod, ended.isFromServer = p.status, nil, true
	p = decide(ended)
	if p.status.NodeName != "" || p.status.PodInfo.PodUID != "" || p.podNameAction != dropPodName {
		t.Errorf("its pod is gone: pod name %v, status %+v", p.podNameAction, p.status)
	}
	if c := seen(t, ended, p, v1beta1.ConditionFinished); !c.LastTransitionTime.Equal(&finished.LastTransitionTime) {
		t.Errorf("Finished was since %v, is since %v", finished.LastTransitionTime, c.LastTransitionTime)
	}
	ended.sandbox.Status, ended.isFromServer = p.status, false
	if p = decide(ended); p.action != actionNone {
		t.Errorf("and then: action %v", p.action)
	}

	moved := watch(nil, true, inAgents, due(now.Add(time.Hour)), phase(v1alpha1.SandboxPaused), held(pauseIsDone,
		cond(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSandboxExpired, expiredMessage)))
	if p = decide(moved); p.action != actionCreate || p.status.Phase != v1alpha1.SandboxResuming {
		t.Errorf("moved: action %v, phase %s", p.action, p.status.Phase)
	}
}

func TestMayTake(t *testing.T) {
	for name, test := range map[string]struct {
		sandbox *v1alpha1.Sandbox
		labels  map[string]string
		want    bool
	}{
		"ours":           {newSandbox(), nil, true},
		"a stranger's":   {newSandbox(inAgents), nil, false},
		"adoptable":      {newSandbox(inAgents), map[string]string{v1alpha1.AgentLabelAdoptable: "true"}, true},
		"of its name":    {newSandbox(inAgents), map[string]string{v1alpha1.AgentLabelNameHash: v1alpha1.NameHash("box")}, true},
		"of another one": {newSandbox(inAgents), map[string]string{v1alpha1.AgentLabelNameHash: v1alpha1.NameHash("bax")}, false},
	} {
		if got := mayUsePVC(test.sandbox, &metav1.ObjectMeta{Labels: test.labels}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
