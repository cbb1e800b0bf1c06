// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// watchSeconds is how long one watch lasts before the claim is read again, in case that
// the connection is dead and the other side does not say so.
const watchSeconds int64 = 300

// errCut means that a watch has ended.
var errCut = errors.New("the watch was cut")

// await waits until a claim is Completed, and returns it as it was seen last.
func await(ctx context.Context, claims typed.SandboxClaimInterface, claim *v1alpha1.SandboxClaim, retryFor time.Duration) (*v1alpha1.SandboxClaim, error) {
	p := newPatience(retryFor)
	for claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		next, err := follow(ctx, claims, claim)
		if next != nil {
			p.heard()
			claim = next
		}
		switch {
		case err == nil:
			return claim, nil
		case ctx.Err() != nil:
			return claim, over(ctx, nil)
		case judge(err) == final && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return claim, err
		}
		if err := p.again(ctx, err); err != nil {
			return claim, err
		}
	}
	return claim, nil
}

// follow reads a claim and watches it until it is Completed, or the watch ends. It returns
// the claim as it was seen last; nil if it was not.
//
// The watch begins before the read, so nothing is missed in between.
func follow(ctx context.Context, claims typed.SandboxClaimInterface, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	timeout := watchSeconds
	w, err := claims.Watch(ctx, metav1.ListOptions{
		FieldSelector:  fields.OneTermEqualSelector(metav1.ObjectNameField, claim.Name).String(),
		TimeoutSeconds: &timeout,
	})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	last, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, err
	case last.UID != claim.UID:
		return nil, gone(claim)
	case last.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted:
		return last, nil
	}
	_, err = watchtools.UntilWithoutRetry(ctx, w, func(event watch.Event) (bool, error) {
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		seen, ok := event.Object.(*v1alpha1.SandboxClaim)
		if !ok || seen.UID != claim.UID {
			return false, nil
		}
		last = seen
		if seen.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
			return true, nil
		}
		if event.Type == watch.Deleted {
			return false, gone(claim)
		}
		return false, nil
	})
	if errors.Is(err, watchtools.ErrWatchClosed) {
		err = errCut
	}
	return last, err
}

func gone(claim *v1alpha1.SandboxClaim) error {
	return fmt.Errorf("waiting for SandboxClaim %s/%s, which was deleted: %w", claim.Namespace, claim.Name,
		apierrors.NewNotFound(v1alpha1.Resource("sandboxclaims"), claim.Name))
}
