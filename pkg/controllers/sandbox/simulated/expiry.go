// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
)

// NewExpiry returns a controller that plays what happens to sandboxes that are kept at their
// shutdownTime: they lose the pod that they do not have. One whose shutdownTime is moved or
// taken away is resumed.
func NewExpiry(c client.Client, clk clock.PassiveClock, workers int) *lifetime.Timer[*v1alpha1.Sandbox] {
	return &lifetime.Timer[*v1alpha1.Sandbox]{
		Controller: "simulated-expiry", Kind: "Sandbox", Client: c, Clock: clk, Workers: workers,
		Empty: func() *v1alpha1.Sandbox { return &v1alpha1.Sandbox{} },
		Due:   func(sandbox *v1alpha1.Sandbox, _ time.Time) (time.Time, bool) { return expiryOf(sandbox) },
		Act: func(ctx context.Context, sandbox *v1alpha1.Sandbox, _, now time.Time) error {
			status, err := statusExpired(sandbox, now)
			if err != nil {
				return reconcile.TerminalError(err)
			}
			if err := (&Controller{client: c}).patchStatus(ctx, sandbox, status); err != nil {
				return fmt.Errorf("expiring Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
			}
			return nil
		},
	}
}

// expiryOf returns when a sandbox expires, if it is kept then and has not expired yet.
func expiryOf(sandbox *v1alpha1.Sandbox) (time.Time, bool) {
	if sandbox.Spec.ShutdownTime == nil || sandbox.DeletionTimestamp != nil ||
		!v1alpha1.KeptAtShutdown(sandbox) || v1alpha1.SandboxExpired(sandbox) {
		return time.Time{}, false
	}
	return sandbox.Spec.ShutdownTime.Time, true
}

// statusExpired returns the status of a sandbox that has expired. One that has ended stays
// in its phase.
func statusExpired(sandbox *v1alpha1.Sandbox, now time.Time) (v1alpha1.SandboxStatus, error) {
	next := pause
	if phase := sandbox.Status.Phase; phase == v1alpha1.SandboxSucceeded || phase == v1alpha1.SandboxFailed {
		next = observe
	}
	status, err := statusAfter(next, sandbox, nil, now)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	status.PodInfo, status.NodeName, status.SandboxIP, status.ServiceFQDN = v1alpha1.PodInfo{}, "", "", ""
	setter(&status, sandbox.Generation, now)(
		v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSandboxExpired, "The sandbox has expired")
	return status, nil
}
