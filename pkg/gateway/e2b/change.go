// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// maxTries is how often a sandbox is read and written that others write at the same time.
const maxTries = 8

// asItIs reads a sandbox and does something about it as it was read. One that has changed
// when that is done is read again.
func asItIs(ctx context.Context, read func(context.Context) (*v1alpha1.Sandbox, error), do func(*v1alpha1.Sandbox) error) error {
	var err error
	for range maxTries {
		sb, readErr := read(ctx)
		if readErr != nil {
			return readErr
		}
		if err = do(sb); !apierrors.IsConflict(err) {
			break
		}
	}
	if apierrors.IsNotFound(err) {
		return &Error{Code: http.StatusNotFound, Message: "the sandbox has ended"}
	}
	return err
}

// change writes what is decided about the sandbox of the id in the path as it is, and
// returns it as it was before and is after.
func (c *call) change(decide func(*v1alpha1.Sandbox) (*mapping.Change, error)) (before, after *v1alpha1.Sandbox, err error) {
	return c.changeOf(c.r.Context(), c.sandboxOf(c.r.PathValue("id")), decide)
}

func (c *call) changeOf(ctx context.Context, read func(context.Context) (*v1alpha1.Sandbox, error),
	decide func(*v1alpha1.Sandbox) (*mapping.Change, error)) (before, after *v1alpha1.Sandbox, _ error) {
	err := asItIs(ctx, read, func(sb *v1alpha1.Sandbox) error {
		before, after = sb, sb
		change, err := decide(sb)
		if err != nil || change.IsEmpty() {
			return err
		}
		patch, err := change.Patch()
		if err != nil {
			return err
		}
		after, err = c.patchSandbox(ctx, sb, patch)
		return err
	})
	return before, after, err
}
