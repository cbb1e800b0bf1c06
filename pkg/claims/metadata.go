// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import "github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"

// MetadataBehind reports whether a claim that is Completed has been given other labels,
// annotations or additionalPodMetadata since, and its sandboxes may not have them yet. Such
// a claim waits for nothing and gets nothing more: see Unfinished.
func MetadataBehind(claim *v1alpha1.SandboxClaim) bool {
	return claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted && claim.DeletionTimestamp == nil &&
		claim.Status.ObservedGeneration != claim.Generation
}
