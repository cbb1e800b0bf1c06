// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// laterStep is how long a pod that has to wait for its label waits before it is
// looked at again. Thousands may wait at a time.
const laterStep = time.Second

// noteClaim notices that a claim took a sandbox out of its pool.
func (c *Controller) noteClaim(before, after client.Object) {
	was, okBefore := before.(*v1alpha1.Sandbox)
	is, okAfter := after.(*v1alpha1.Sandbox)
	if !okBefore || !okAfter || v1alpha1.PoolOf(is) != nil {
		return
	}
	if pool := v1alpha1.PoolOf(was); pool != nil {
		c.lull.Claimed(types.NamespacedName{Namespace: was.Namespace, Name: pool.Name}, c.clock.Now())
	}
}

// labelLater returns how long the metadata of a pod can wait; 0 is not at all. The
// label that tells whose claim has the pod comes after a storm of claims. What the
// claim asks for does not wait: a NetworkPolicy may select by it.
func (c *Controller) labelLater(o *observation) time.Duration {
	if o.sandbox.Labels[v1alpha1.LabelSandboxClaimed] != v1alpha1.ClaimedTrue || askedForMetadata(o.sandbox) {
		return 0
	}
	pool := types.NamespacedName{Namespace: o.sandbox.Namespace, Name: o.sandbox.Labels[v1alpha1.LabelSandboxPool]}
	if c.lull.Wait(pool, o.now) == 0 {
		return 0
	}
	return laterStep
}

// askedForMetadata says whether the claim of a sandbox gave it labels or
// annotations. Where that is not known, it did.
func askedForMetadata(sandbox *v1alpha1.Sandbox) bool {
	var added struct{ Labels, Annotations []string }
	if err := json.Unmarshal([]byte(sandbox.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim]), &added); err != nil {
		return true
	}
	return len(added.Labels)+len(added.Annotations) > 0
}
