// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// addresses counts the sandboxes that were made, for addresses of their own.
var addresses atomic.Uint32

// running returns a sandbox of a set that is ready and in no pool.
func running(set *v1alpha1.SandboxSet) *v1alpha1.Sandbox {
	n := addresses.Add(1)
	ip := fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
	sandbox := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name[:min(len(set.Name), 50)] + "-" + rand.String(12),
			Labels: map[string]string{v1alpha1.LabelSandboxTemplate: v1alpha1.TemplateLabel(set.Name)},
		},
		Spec: v1alpha1.SandboxSpec{EmbeddedSandboxTemplate: *set.Spec.EmbeddedSandboxTemplate.DeepCopy()},
		Status: v1alpha1.SandboxStatus{
			ObservedGeneration: 1, Phase: v1alpha1.SandboxRunning, NodeName: "fake", SandboxIP: ip,
			PodInfo: v1alpha1.PodInfo{PodIP: ip, NodeName: "fake"},
			Conditions: []metav1.Condition{{
				Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady, LastTransitionTime: metav1.Now(),
			}},
		},
	}
	identify(sandbox)
	return sandbox
}

// pooled returns an available sandbox of a set.
func pooled(set *v1alpha1.SandboxSet) *v1alpha1.Sandbox {
	sandbox := running(set)
	sandbox.Labels[v1alpha1.LabelSandboxPool] = set.Name
	sandbox.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse
	sandbox.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))}
	return sandbox
}

// available reports whether a sandbox of a pool can be claimed.
func available(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.DeletionTimestamp == nil && !sandbox.Spec.Paused && sandbox.Annotations[v1alpha1.AnnotationLock] == "" &&
		sandbox.Status.Phase == v1alpha1.SandboxRunning &&
		meta.IsStatusConditionTrue(sandbox.Status.Conditions, v1alpha1.SandboxConditionReady)
}

// bind makes a sandbox the claim's.
func bind(sandbox *v1alpha1.Sandbox, claim *v1alpha1.SandboxClaim) {
	pool := v1alpha1.PoolOf(sandbox)
	sandbox.OwnerReferences = nil
	if claim.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete {
		sandbox.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(claim, v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"))}
	}
	sandbox.Labels = with(sandbox.Labels, claim.Spec.Labels, map[string]string{
		v1alpha1.LabelClaimName: claim.Name, v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue,
	})
	sandbox.Annotations = with(sandbox.Annotations, claim.Spec.Annotations, map[string]string{
		v1alpha1.AnnotationOwner:          string(claim.UID),
		v1alpha1.AnnotationLock:           string(uuid.NewUUID()),
		v1alpha1.AnnotationClaimTimestamp: metav1.Now().UTC().Format(time.RFC3339),
	})
	if pool != nil {
		sandbox.Annotations[v1alpha1.AnnotationPoolUID] = string(pool.UID)
	}
	if t := claim.Spec.ShutdownTime; t != nil {
		sandbox.Spec.ShutdownTime, sandbox.Spec.PauseTime = t.DeepCopy(), nil
	}
}

// with returns a map with the entries of all, the last winning.
func with(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, m := range all {
		maps.Copy(merged, m)
	}
	return merged
}
