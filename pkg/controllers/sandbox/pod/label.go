// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/quietperiod"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// labelDelay is how long a pod that has to wait for its label waits before it is
// looked at again. Thousands may wait at a time.
const labelDelay = time.Second

// labeler gives the pods of claimed sandboxes the metadata that came with the claim.
type labeler struct {
	client        client.Client
	clock         clock.PassiveClock
	recorder      *report.Recorder
	resolver      *resolver
	claimActivity *quietperiod.Tracker
}

// noteClaim records when a claim took a sandbox out of its pool.
func (l *labeler) noteClaim(before, after client.Object) {
	was, okBefore := before.(*v1alpha1.Sandbox)
	is, okAfter := after.(*v1alpha1.Sandbox)
	if !okBefore || !okAfter || v1alpha1.PoolOf(is) != nil {
		return
	}
	if pool := v1alpha1.PoolOf(was); pool != nil {
		l.claimActivity.Claimed(types.NamespacedName{Namespace: was.Namespace, Name: pool.Name}, l.clock.Now())
	}
}

// delay returns how long the metadata of a pod can wait; 0 is not at all. The label with
// the claim of the pod comes when claims on the set pause. What the claim asks for does not
// wait: a NetworkPolicy may select by it. With a claim of agent-sandbox it waits for a
// second at most: until then routers take the pod for an unused one.
func (l *labeler) delay(o *observation) time.Duration {
	if o.sandbox.Labels[v1alpha1.LabelSandboxClaimed] != v1alpha1.ClaimedTrue || askedForMetadata(o.sandbox) {
		return 0
	}
	pool := types.NamespacedName{Namespace: o.sandbox.Namespace, Name: o.sandbox.Labels[v1alpha1.LabelSandboxPool]}
	if l.claimActivity.Wait(pool, o.now) == 0 || v1alpha1.OfAgentSandbox(o.sandbox) && claimedFor(o) >= labelDelay {
		return 0
	}
	return labelDelay
}

// claimedFor returns for how long a sandbox has been claimed, give or take a second; where
// that is not known, for long.
func claimedFor(o *observation) time.Duration {
	at, err := time.Parse(time.RFC3339, o.sandbox.Annotations[v1alpha1.AnnotationClaimTimestamp])
	if err != nil {
		return labelDelay
	}
	return o.now.Sub(at)
}

// askedForMetadata reports whether the claim of a sandbox gave it, or its pod, labels or
// annotations, or took some away. Where that is not known, it did.
func askedForMetadata(sandbox *v1alpha1.Sandbox) bool {
	if _, onPod := sandbox.Annotations[v1alpha1.AnnotationPodMetadataInClaim]; onPod {
		return true
	}
	var added struct{ Labels, Annotations []string }
	if err := json.Unmarshal([]byte(sandbox.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim]), &added); err != nil {
		return true
	}
	return len(added.Labels)+len(added.Annotations) > 0
}

// label gives the pod the metadata that the sandbox wants.
func (l *labeler) label(ctx context.Context, o *observation) error {
	sandbox, err := l.resolver.whole(ctx, o.sandbox)
	if _, missing := asTemplateError(err); missing {
		return nil // the pod stays as it is until there is a template
	}
	if err != nil {
		return fmt.Errorf("resolving the template of Sandbox %s/%s: %w", o.sandbox.Namespace, o.sandbox.Name, err)
	}
	patch, err := podtemplate.PodMetadataPatch(sandbox, o.revision, o.pod.UID, o.pod.Annotations)
	if err != nil {
		return fmt.Errorf("building the metadata of Pod %s/%s: %w", o.pod.Namespace, o.pod.Name, err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.pod.Namespace, Name: o.pod.Name}}
	err = l.client.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch), fieldOwner)
	if client.IgnoreNotFound(err) != nil && !isAnother(err) {
		if isRefusal(err) {
			l.recorder.Event(o.sandbox, corev1.EventTypeWarning, reasonPodUpdateFailed, err.Error())
		}
		return fmt.Errorf("patching the metadata of Pod %s/%s: %w", o.pod.Namespace, o.pod.Name, err)
	}
	return nil
}
