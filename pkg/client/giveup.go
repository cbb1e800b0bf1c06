// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// giveUp reads the claim of the call, gives it back if the options say so, and returns the
// claim as it was seen last, and a GivenUpError. It has a context of its own, because that
// of the call has ended.
func (c *call) giveUp(ctx context.Context, claim *v1alpha1.SandboxClaim, cause error) (*v1alpha1.SandboxClaim, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.options.GiveUpTimeout)
	defer cancel()
	e := &GivenUpError{Namespace: c.want.Namespace, Name: c.want.Name, Claim: claim, Err: cause}
	there, err := c.claims.Get(ctx, c.want.Name, metav1.GetOptions{})
	switch {
	case err == nil && c.made(there):
		e.Claim, e.Known = there, true
	case err == nil || apierrors.IsNotFound(err):
		// A create that the server still processes may store the claim after this read.
		e.Known, e.Claim = claim != nil || !c.mayBeStored, nil
	}
	if c.options.OnGiveUp == GiveUpGiveBack && e.Claim != nil {
		e.GiveBackErr = GiveBack(ctx, c.agents, e.Claim)
		e.GivenBack = e.GiveBackErr == nil
	}
	return e.Claim, e
}
