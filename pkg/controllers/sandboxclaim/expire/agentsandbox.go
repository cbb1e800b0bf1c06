// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package expire

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/report"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/lifetime"
)

// What claims of agent-sandbox say when they expire: clients of that API read it.

// Actions of the event ClaimExpired in agent-sandbox: when the claim says that it has
// expired, and when it is deleted then.
const (
	actionExpired  = "Claim Expired"
	actionDeleting = "Deleting"
)

// skippedEnding ends the message of a claim that keeps its sandbox because that is not its
// own.
const skippedEnding = "; deletion skipped."

// recordExpiry records that a claim has expired.
func (c *Controller) recordExpiry(claim *v1alpha1.SandboxClaim) {
	if claims.Continuous(claim) {
		c.recordAgentExpiry(claim, actionExpired)
		return
	}
	c.recorder.Event(claim, corev1.EventTypeNormal, eventClaimExpired,
		fmt.Sprintf("Expired, its sandboxes are deleted (ShutdownPolicy=%s)", claim.Spec.Lifecycle.ShutdownPolicy))
}

// deleteClaim deletes a claim that has expired, once what it has is ready for that. Of one
// of agent-sandbox it records that as well.
func (c *Controller) deleteClaim(ctx context.Context, claim *v1alpha1.SandboxClaim, options ...client.DeleteOption) error {
	if err := lifetime.Delete(ctx, c.Client, c.Kind, claim, options...); err != nil {
		return err
	}
	if claims.Continuous(claim) {
		c.recordAgentExpiry(claim, actionDeleting)
	}
	return nil
}

// recordAgentExpiry records the event of agent-sandbox with an action.
func (c *Controller) recordAgentExpiry(claim *v1alpha1.SandboxClaim, action string) {
	recorder := report.Recorder{EventRecorder: c.recorder.EventRecorder, Kind: c.recorder.Kind, Action: action}
	recorder.Event(claim, corev1.EventTypeNormal, eventClaimExpired,
		fmt.Sprintf("Deleting Claim (ShutdownPolicy=%s)", claim.Spec.Lifecycle.ShutdownPolicy))
}

// expiredMessage is what a claim says when it has expired.
func (c *Controller) expiredMessage(ctx context.Context, claim *v1alpha1.SandboxClaim) (string, error) {
	name := claims.AgentSandbox(claim)
	if !claims.Continuous(claim) || name == "" {
		return v1alpha1.ClaimExpiredMessage, nil
	}
	sandbox := &v1alpha1.Sandbox{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, sandbox, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return v1alpha1.ClaimExpiredMessage, nil
	case err != nil:
		return "", fmt.Errorf("getting Sandbox %s/%s: %w", claim.Namespace, name, err)
	case v1alpha1.IsBoundTo(sandbox, claim):
		return v1alpha1.ClaimExpiredMessage, nil
	}
	return fmt.Sprintf("Claim expired. Sandbox %q is not controlled by claim %q%s", name, claim.Name, skippedEnding), nil
}

// isSkipped reports whether a message of a claim of agent-sandbox that has expired says
// that its sandbox is not its own.
func isSkipped(claim *v1alpha1.SandboxClaim, message string) bool {
	return claims.Continuous(claim) && strings.HasSuffix(message, skippedEnding)
}

// expiredGeneration is the generation of a claim of which Ready tells in agent-sandbox; the
// conditions of other claims have none.
func expiredGeneration(claim *v1alpha1.SandboxClaim) int64 {
	if claims.Continuous(claim) {
		return claim.Generation
	}
	return 0
}
