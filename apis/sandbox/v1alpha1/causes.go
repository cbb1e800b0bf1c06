// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of the causes in the Status of a write that was refused with 429 TooManyRequests.
// Clients tell them apart by apierrors.HasStatusCause.
const (
	// CauseWriteLimit means that the write exceeds a limit of bytes that are written to etcd, or
	// that etcd is nearly full.
	CauseWriteLimit metav1.CauseType = "WriteLimitExceeded"
	// CauseShortage means that the pool of a claim has too few sandboxes available now, and that the
	// claim does not wait for them.
	CauseShortage metav1.CauseType = "SandboxShortage"
	// CauseTooManyWaiting means that the claim would have to wait, and that as many claims
	// of its namespace wait as may.
	CauseTooManyWaiting metav1.CauseType = "TooManyWaitingClaims"
)
