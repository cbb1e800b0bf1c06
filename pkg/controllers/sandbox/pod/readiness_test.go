// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestQuietAfterRestart: a sandbox that no one uses is ready when a container that was restarted has
// run for a while.
func TestQuietAfterRestart(t *testing.T) {
	inPool := func(s *v1alpha1.Sandbox) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "p", Controller: new(true)}}
	}
	starts := func(s *v1alpha1.Sandbox) { s.Annotations = map[string]string{v1alpha1.AnnotationStarting: "true"} }
	changesImage := func(s *v1alpha1.Sandbox) { s.Annotations[v1alpha1.AnnotationInplaceUpdate] = `{"image":true}` }
	changesCPU := func(s *v1alpha1.Sandbox) { s.Annotations[v1alpha1.AnnotationInplaceUpdate] = `{"cpu":true}` }
	since := func(restarts int32, ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			runs("True")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "c", RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ago))}},
			}}
		}
	}
	asSidecar := func(p *corev1.Pod) {
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses, nil
	}
	for name, test := range map[string]struct {
		sandbox func(*v1alpha1.Sandbox)
		pod     []func(*corev1.Pod)
		quiet   time.Duration
	}{
		"never restarted":           {inPool, []func(*corev1.Pod){since(0, time.Second)}, 0},
		"just now":                  {inPool, []func(*corev1.Pod){since(1, time.Second)}, quietAfterRestart - time.Second},
		"a sidecar":                 {inPool, []func(*corev1.Pod){since(1, time.Second), asSidecar}, quietAfterRestart - time.Second},
		"it starts for a claim":     {starts, []func(*corev1.Pod){since(1, time.Second)}, quietAfterRestart - time.Second},
		"a claim changes the image": {func(s *v1alpha1.Sandbox) { starts(s); changesImage(s) }, []func(*corev1.Pod){since(1, time.Second)}, 0},
		"a claim changes the cpu":   {func(s *v1alpha1.Sandbox) { starts(s); changesCPU(s) }, []func(*corev1.Pod){since(1, time.Second)}, quietAfterRestart - time.Second},
		"in use":                    {func(*v1alpha1.Sandbox) {}, []func(*corev1.Pod){since(1, time.Second)}, 0},
		"some time ago":             {inPool, []func(*corev1.Pod){since(5, quietAfterRestart)}, 0},
		"by a clock that is ahead":  {inPool, []func(*corev1.Pod){since(1, -time.Second)}, quietAfterRestart + time.Second},
		"by a wrong clock":          {inPool, []func(*corev1.Pod){since(1, -time.Hour)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{sandbox: newSandbox(phase(v1alpha1.SandboxPending), test.sandbox), pod: trim(newPod(test.pod...)), isFromServer: true, revision: revision, now: now}
			p := decide(o)
			ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionReady)
			want := v1alpha1.ReasonPodReady
			if test.quiet > 0 {
				want = v1alpha1.ReasonContainerRestarted
			}
			if ready.Reason != want || (ready.Status == yes) != (test.quiet == 0) || p.status.Phase != v1alpha1.SandboxRunning || p.requeueAfter != test.quiet {
				t.Errorf("%+v in phase %s, again after %s", ready, p.status.Phase, p.requeueAfter)
			}
		})
	}
}
