// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// readFromAPI reads the route of an id from the API server: its claim, and the sandbox of the claim.
func (t *Table) readFromAPI(ctx context.Context, id, namespace, name string) (Route, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	if route, ok := t.store.find(id); ok { // the watch has reported it meanwhile
		return route, nil
	}
	sandbox, err := t.sandboxOf(ctx, namespace, name)
	if err != nil {
		return Route{}, t.toTableError(ctx, id, err)
	}
	e := newEntry(sandbox)
	if e.id != id {
		return Route{}, t.toTableError(ctx, id, ErrNotFound)
	}
	t.store.addRead(e)
	return e.route(t.clock.Now()), nil
}

// sandboxOf reads the sandbox of a claim of the E2B API. It returns errNotYet if the claim
// has none.
func (t *Table) sandboxOf(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error) {
	claim, err := t.client.SandboxClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if !v1alpha1.IsE2BClaim(claim) {
		return nil, ErrNotFound
	}
	if len(claim.Status.Sandboxes) == 0 {
		return nil, errNotYet
	}
	is := claim.Status.Sandboxes[0] // an earlier claim of this name may have left others, which are not its own
	sandbox, err := t.client.Sandboxes(namespace).Get(ctx, is.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if sandbox.UID != is.UID {
		return nil, ErrNotFound
	}
	return sandbox, nil
}

// errNotYet means that the claim of an id waits for its sandbox.
var errNotYet = fmt.Errorf("%w: its claim has no sandbox yet", ErrNotFound)

// toTableError returns ErrNotFound or ErrUnavailable for an error. It remembers ids that do not exist.
func (t *Table) toTableError(ctx context.Context, id string, err error) error {
	switch {
	case errors.Is(err, errNotYet):
		return err
	case errors.Is(err, ErrNotFound) || apierrors.IsNotFound(err):
		t.unknown.Add(id, t.clock.Now().Add(unknownFor))
		return ErrNotFound
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	klog.FromContext(ctx).Error(err, "Failed to look up sandbox", "id", id)
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func (t *Table) isUnknown(id string) bool {
	until, ok := t.unknown.Get(id)
	if !ok {
		return false
	}
	at, ok := until.(time.Time)
	return ok && t.clock.Now().Before(at)
}
