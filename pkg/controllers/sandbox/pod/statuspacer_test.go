// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// fakeClient returns a sandbox and its pod, and stores statuses of the sandbox.
type fakeClient struct {
	client.Client
	sandbox *v1alpha1.Sandbox
	pod     *corev1.Pod
	writes  int
}

func (c *fakeClient) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *v1alpha1.Sandbox:
		*into = *c.sandbox.DeepCopy()
	case *corev1.Pod:
		*into = *trim(c.pod)
	default:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func (c *fakeClient) Status() client.SubResourceWriter { return statusOf{client: c} }

type statusOf struct {
	client.SubResourceWriter
	client *fakeClient
}

func (s statusOf) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	s.client.writes++
	s.client.sandbox.Status = *object.(*v1alpha1.Sandbox).Status.DeepCopy()
	s.client.sandbox.ResourceVersion = strconv.Itoa(s.client.writes)
	object.SetResourceVersion(s.client.sandbox.ResourceVersion)
	return nil
}

// changingPods are pods that differ in what a process in them, or a user of the cluster, can change
// as often as they like.
var changingPods = map[string]struct {
	running bool
	pod     func(i int) func(*corev1.Pod)
}{
	"readiness": {true, func(i int) func(*corev1.Pod) {
		return runs([]corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue}[i%2])
	}},
	"why it is not ready": {true, func(i int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			runs(corev1.ConditionFalse)(p)
			p.Status.Conditions[0].Reason, p.Status.Conditions[0].Message = "ReadinessGatesNotReady", fmt.Sprint("gate ", i)
		}
	}},
	"containers that restart": {true, func(i int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			runs(corev1.ConditionFalse)(p)
			waits("CrashLoopBackOff", fmt.Sprint("back-off ", i))(p)
		}
	}},
	"containers that restart at once": {true, func(i int) func(*corev1.Pod) {
		return func(p *corev1.Pod) { runs(corev1.ConditionTrue)(p); restarted(int32(i))(p) }
	}},
	"what the node says": {true, func(i int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			runs(corev1.ConditionFalse)(p)
			p.Status.Reason, p.Status.Message = fmt.Sprint("Reason", i), fmt.Sprint("message ", i)
		}
	}},
	"address": {true, func(i int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			runs(corev1.ConditionTrue)(p)
			p.Status.PodIP = fmt.Sprint("10.0.0.", i%200)
		}
	}},
	"why it does not start": {false, func(i int) func(*corev1.Pod) {
		return unscheduled("Unschedulable", "no node has "+strings.Repeat("x", i%7))
	}},
	"images that cannot be pulled": {false, func(i int) func(*corev1.Pod) {
		return waits([]string{"ErrImagePull", "ImagePullBackOff"}[i%2], fmt.Sprint("image ", i))
	}},
	"scheduling gates": {false, func(i int) func(*corev1.Pod) {
		return unscheduled([]string{corev1.PodReasonSchedulingGated, corev1.PodReasonUnschedulable}[i%2], "a gate")
	}},
}

// TestRepeatedChangesAreDelayed checks that a pod that changes without end causes few writes of its
// sandbox, that the first change is written at once, and that the last state is written, even if the
// controller restarts meanwhile.
func TestRepeatedChangesAreDelayed(t *testing.T) {
	const changes, most = 1000, 26 // the pauses are 1, 2, 4, 8, 16, 32 s, and a minute each
	for name, kind := range changingPods {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(now)
			p := &fakeClient{sandbox: newSandbox()}
			revision, err := podtemplate.SandboxRevision(p.sandbox)
			if err != nil {
				t.Fatal(err)
			}
			show := func(i int) {
				p.pod = newPod(func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelPodTemplateHash] = revision }, kind.pod(i))
				p.pod.ResourceVersion = fmt.Sprint("pod-", i)
			}
			c := New(Options{Client: p, Reader: p, Clock: clk})
			reconciled := func() time.Duration {
				t.Helper()
				result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p.sandbox)})
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			isShown := func() bool {
				o := &observation{sandbox: p.sandbox, revision: revision, pod: trim(p.pod), now: clk.Now()}
				want := decide(o)
				return equality.Semantic.DeepEqual(p.sandbox.Status, want.status)
			}
			show(0)
			reconciled()
			if reconciled(); (p.sandbox.Status.Phase == v1alpha1.SandboxRunning) != kind.running || !isShown() {
				t.Fatalf("the test begins with %+v", p.sandbox.Status)
			}
			p.writes = 0
			show(1)
			if reconciled(); p.writes != 1 || !isShown() {
				t.Errorf("%d writes for the first change", p.writes)
			}
			var again time.Duration
			for i := range changes {
				clk.SetTime(clk.Now().Add(time.Second))
				show(i)
				again = reconciled()
			}
			if p.writes > most {
				t.Errorf("%d writes for %d changes, want at most %d", p.writes, changes, most)
			}
			for range 2 {
				if isShown() != (again == 0) {
					t.Errorf("the last state is shown: %t; it is looked at again after %s", isShown(), again)
				}
				clk.SetTime(clk.Now().Add(again))
				if again = reconciled(); again == 0 && !isShown() {
					t.Error("the last state is not written")
				}
			}
			show(1)
			reconciled()
			show(2)
			reconciled()
			c = New(Options{Client: p, Reader: p, Clock: clk})
			if reconciled(); !isShown() {
				t.Error("after a restart the controller does not write the delayed state")
			}
		})
	}
}

// TestWrittenAtOnce checks that changes that cannot be repeated are not delayed.
func TestWrittenAtOnce(t *testing.T) {
	before := func(change func(*v1alpha1.SandboxStatus)) *v1alpha1.Sandbox {
		s := newSandbox(phase(v1alpha1.SandboxRunning), addressed, held(podIsReady,
			cond(v1alpha1.SandboxConditionInplaceUpdate, metav1.ConditionFalse, v1alpha1.ReasonInplaceUpdating, "")))
		s.Status.ObservedGeneration = 3
		change(&s.Status)
		return s
	}
	for name, test := range map[string]struct {
		change  func(*v1alpha1.SandboxStatus)
		delayed bool
	}{
		"ready":             {func(s *v1alpha1.SandboxStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, true},
		"another message":   {func(s *v1alpha1.SandboxStatus) { s.Conditions[1].Message = "uses 17 MiB" }, true},
		"another address":   {func(s *v1alpha1.SandboxStatus) { s.SandboxIP, s.PodInfo.PodIP = "10.0.0.2", "10.0.0.2" }, true},
		"restarts":          {func(s *v1alpha1.SandboxStatus) { s.PodInfo.RestartCount = new(int32(1)) }, true},
		"no address":        {func(s *v1alpha1.SandboxStatus) { s.SandboxIP, s.PodInfo.PodIP = "", "" }, false},
		"another pod":       {func(s *v1alpha1.SandboxStatus) { s.PodInfo.PodUID = "second" }, false},
		"phase":             {func(s *v1alpha1.SandboxStatus) { s.Phase = v1alpha1.SandboxFailed }, false},
		"generation":        {func(s *v1alpha1.SandboxStatus) { s.ObservedGeneration++ }, false},
		"of the condition":  {func(s *v1alpha1.SandboxStatus) { s.Conditions[0].ObservedGeneration++ }, false},
		"updated":           {func(s *v1alpha1.SandboxStatus) { s.Conditions[1].Status = metav1.ConditionTrue }, false},
		"another condition": {func(s *v1alpha1.SandboxStatus) { s.Conditions = append(s.Conditions, cond("Paused", "True", "P", "")) }, false},
	} {
		p := newStatusPacer(clocktesting.NewFakePassiveClock(now))
		p.readiness.RecordWrite(newSandbox())
		p.addresses.RecordWrite(newSandbox())
		was, is := before(func(*v1alpha1.SandboxStatus) {}), before(test.change)
		if delay := p.delay(box, was, &is.Status); (delay > 0) != test.delayed {
			t.Errorf("%s: waits for %s", name, delay)
		}
	}
}

// TestRestartsOfRuntimesAreWrittenAtOnce: a runtime that was restarted has no token, and nothing may
// reach it until it has one. What has no runtime crashes as often as it likes.
func TestRestartsOfRuntimesAreWrittenAtOnce(t *testing.T) {
	runtimeIs := func(value metav1.ConditionStatus) func(*v1alpha1.Sandbox) {
		return held(cond(v1alpha1.SandboxConditionRuntimeInitialized, value, "R", ""))
	}
	inPool := func(s *v1alpha1.Sandbox) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", Controller: new(true)}}
	}
	starting := func(s *v1alpha1.Sandbox) { s.Annotations = map[string]string{v1alpha1.AnnotationStarting: "true"} }
	for name, test := range map[string]struct {
		sandbox *v1alpha1.Sandbox
		delayed bool
	}{
		"has a token in a pool":  {newSandbox(inPool, runtimeIs(metav1.ConditionTrue)), false},
		"gets a token in a pool": {newSandbox(inPool, runtimeIs(metav1.ConditionFalse)), false},
		"no runtime in a pool":   {newSandbox(inPool), true},
		"has a token in use":     {newSandbox(runtimeIs(metav1.ConditionTrue)), false},
		"failed in use":          {newSandbox(runtimeIs(metav1.ConditionFalse)), false},
		"is set up in use":       {newSandbox(held(toBeSetUp)), true},
		"no runtime in use":      {newSandbox(), true},
		"is set up for a claim":  {newSandbox(starting, runtimeIs(metav1.ConditionFalse)), false},
	} {
		p := newStatusPacer(clocktesting.NewFakePassiveClock(now))
		p.readiness.RecordWrite(newSandbox())
		is := test.sandbox.DeepCopy()
		is.Status.PodInfo.RestartCount = new(int32(1))
		if delay := p.delay(box, test.sandbox, &is.Status); (delay > 0) != test.delayed {
			t.Errorf("%s: waits for %s", name, delay)
		}
	}
}
