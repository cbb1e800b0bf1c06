// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// With the option, nothing is noted on a claim, whatever trace its request is in.
func TestWithoutObservations(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup},
	}}
	o := Options{WithoutObservations: true}
	if got := o.withFirstObserved(t.Context(), claim, birth); got != claim {
		t.Errorf("the claim has %v", got.Annotations)
	}
	o.WithoutObservations = false
	if got := o.withFirstObserved(t.Context(), claim, birth); got.Annotations[v1alpha1.AgentAnnotationFirstObserved] == "" {
		t.Errorf("the claim has %v", got.Annotations)
	}
}
