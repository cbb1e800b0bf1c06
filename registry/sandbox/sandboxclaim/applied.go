// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// appliedWarnings warns of a new claim that is applied and deleted by its TTL: tools that
// apply what they hold in a repository make it again, and the new one takes other
// sandboxes.
func appliedWarnings(claim *v1alpha1.SandboxClaim, path *field.Path) []string {
	ttl := claim.Spec.TTLAfterCompleted
	if ttl == nil || ttl.Duration < 0 || !isApplied(claim) {
		return nil
	}
	return []string{fmt.Sprintf("%s: the claim is deleted %s after it is Completed; when it is applied again after that, it takes other sandboxes: set \"-1s\" to keep it",
		path.Child("ttlAfterCompleted"), ttl.Duration)}
}

// isApplied reports whether a claim is made by server-side or by kubectl's client-side
// apply.
func isApplied(claim *v1alpha1.SandboxClaim) bool {
	_, byClient := claim.Annotations[corev1.LastAppliedConfigAnnotation]
	return byClient || slices.ContainsFunc(claim.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationApply
	})
}
