// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of the causes in the Status of a claim that was refused with 429 TooManyRequests.
// Clients tell them apart by apierrors.HasStatusCause.
const (
	// CauseShortage means that the pool has too few sandboxes available now, and that the
	// claim does not wait for them.
	CauseShortage metav1.CauseType = "SandboxShortage"
	// CauseTooManyWaiting means that the claim would have to wait, and that as many claims
	// of its namespace wait as may.
	CauseTooManyWaiting metav1.CauseType = "TooManyWaitingClaims"
)
