// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
)

// A sandbox that is made for a claim of agent-sandbox has the claim's name and no other.
// While another has it the claim waits, and the end of that one begins its next turn.

// nameState is whether the sandbox of a claim can have the claim's name. It is found out
// before admission sees the sandbox, which would be charged to a quota at each try; that the
// name is free the transaction finds out.
func (t *turn) nameState(ctx context.Context, claim *v1alpha1.SandboxClaim) (plan.NameState, error) {
	other, err := t.planner.stock.store.Sandbox(ctx, claim.Namespace, claim.Name, t.hand.nameSeen)
	switch {
	case err != nil:
		return plan.NameFree, err
	case other == nil:
		t.hand.nameSeen = 0
		return plan.NameFree, nil
	case other.DeletionTimestamp != nil:
		return plan.NameLeaving, nil
	}
	return plan.NameTaken, nil
}

// maxDenial is how many bytes of a refusal by admission a claim repeats.
const maxDenial = 512

// errNotAsked is what a claim says where admission could not judge its sandbox: its user can
// do nothing about why.
var errNotAsked = errors.New("admission of its Sandbox cannot be asked now")

// denial is what a claim that is stored says of why admission let no sandbox be made for it:
// what its create would have been answered.
func denial(err error) error {
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) || refusal.Status().Code >= http.StatusInternalServerError {
		return errNotAsked
	}
	message := refusal.Status().Message
	if len(message) > maxDenial {
		message = strings.ToValidUTF8(message[:maxDenial], "") + "..."
	}
	return errors.New(message)
}
