// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// goodWorld has two claims, of one sandbox each, and an unused sandbox.
func goodWorld() (world, []load.Answer) {
	w := world{claims: map[string]*v1alpha1.SandboxClaim{}, sandboxes: map[string]*v1alpha1.Sandbox{}, pods: map[string]*corev1.Pod{}}
	var answers []load.Answer
	for _, name := range []string{"one", "two", ""} {
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-" + name, UID: types.UID("sandbox-" + name)}}
		sandbox.Status.Phase, sandbox.Status.PodInfo.PodUID = v1alpha1.SandboxRunning, types.UID("pod-"+name)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: sandbox.Name, UID: types.UID("pod-" + name)}}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(sandbox, v1alpha1.SchemeGroupVersion.WithKind("Sandbox"))}
		pod.Status.PodIP = "ip-" + name
		w.sandboxes[sandbox.Name], w.pods[pod.Name] = sandbox, pod
		if name == "" {
			continue
		}
		claim := newCrowdClaim(name, 1)
		claim.UID = types.UID("claim-" + name)
		claim.Status.Phase, claim.Status.ClaimedReplicas = v1alpha1.SandboxClaimPhaseCompleted, 1
		claim.Status.Sandboxes = []v1alpha1.ClaimedSandbox{{Name: sandbox.Name, PodIPs: []string{pod.Status.PodIP}}}
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationOwner: string(claim.UID), v1alpha1.AnnotationLock: "locked"}
		sandbox.Labels = map[string]string{claimLabel: name}
		pod.Labels = map[string]string{claimLabel: name}
		w.claims[name] = claim
		answers = append(answers, load.Answer{Claim: claim.DeepCopy()})
	}
	return w, answers
}

// TestVerdict makes sure that what the tests of faults look for would be found.
func TestVerdict(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(w world)
		want  string // empty: nothing is wrong
	}{
		"good": {spoil: func(world) {}},
		"bound twice": {func(w world) {
			w.claims["two"].Status.Sandboxes = w.claims["one"].Status.Sandboxes
		}, "is bound to the claims"},
		"claim lost":     {func(w world) { delete(w.claims, "one") }, "claim one, which was answered: is not stored"},
		"another claim":  {func(w world) { w.claims["one"].UID = "other" }, "another one is stored"},
		"unknown claim":  {func(w world) { w.claims["three"] = newCrowdClaim("three", 1) }, "nobody was told"},
		"claim short":    {func(w world) { w.claims["one"].Status.ClaimedReplicas = 0 }, "wants 1"},
		"claim waits":    {func(w world) { w.claims["one"].Status.Phase = v1alpha1.SandboxClaimPhaseClaiming }, "wants 1"},
		"sandbox lost":   {func(w world) { delete(w.sandboxes, "sandbox-one") }, "sandbox sandbox-one is not there"},
		"exchanged":      {func(w world) { w.claims["one"].Status.Sandboxes[0].Name = "sandbox-" }, "it had sandbox sandbox-one"},
		"other owner":    {func(w world) { w.sandboxes["sandbox-one"].Annotations[v1alpha1.AnnotationOwner] = "other" }, `sandbox sandbox-one names "other"`},
		"lock left":      {func(w world) { w.sandboxes["sandbox-"].Annotations = map[string]string{v1alpha1.AnnotationLock: "x"} }, "locked true"},
		"lock missing":   {func(w world) { delete(w.sandboxes["sandbox-one"].Annotations, v1alpha1.AnnotationLock) }, "locked false"},
		"owner left":     {func(w world) { w.sandboxes["sandbox-"].Annotations = map[string]string{v1alpha1.AnnotationOwner: "x"} }, "which does not list it"},
		"no pod":         {func(w world) { delete(w.pods, "sandbox-one") }, "sandbox sandbox-one has no pod"},
		"unused, no pod": {func(w world) { delete(w.pods, "sandbox-") }, "sandbox sandbox- (Running: ) has no pod"},
		"stray pod":      {func(w world) { delete(w.sandboxes, "sandbox-") }, "pod sandbox- is no sandbox's"},
		"pod of another": {func(w world) { w.pods["sandbox-"].OwnerReferences[0].UID = "other" }, "pod sandbox- is no sandbox's"},
		"pod replaced":   {func(w world) { w.pods["sandbox-"].UID = "other" }, "with pod"},
		"failed":         {func(w world) { w.sandboxes["sandbox-"].Status.Phase = v1alpha1.SandboxFailed }, "is Failed"},
		"address":        {func(w world) { w.pods["sandbox-one"].Status.PodIP = "other" }, "its pod is at other"},
		"metadata":       {func(w world) { w.pods["sandbox-one"].Labels = nil }, "is still labelled"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, answers := goodWorld()
			tc.spoil(w)
			err := errors.Join(append(w.wrong(answers, nil), w.mismatches(nil))...)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("finds %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("finds %v, want %q", err, tc.want)
			}
		})
	}
}
