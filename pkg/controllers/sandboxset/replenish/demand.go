// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// demand finds out for how many sandboxes of a set claims wait.
type demand struct {
	client  client.Reader
	indexes *indexes
	claims  *waitingClaims
}

// forSet is how many sandboxes of a set claims wait for, as far as its burst goes, and
// after what time that may be different without an event; 0 is never.
// A claim that several sets may serve counts for each of them: it cannot be known
// which of them will have a sandbox first, or at all.
func (d *demand) forSet(ctx context.Context, set *v1alpha1.SandboxSet, now time.Time) (int, time.Duration, error) {
	burst := claims.Burst(set)
	if burst == 0 {
		return 0, 0, nil
	}
	names, namedExists := namesAskedFor(set), true
	if len(names) > 1 { // a set of the template's name hides this one from claims that ask for that name
		var err error
		if namedExists, err = d.setExists(ctx, types.NamespacedName{Namespace: set.Namespace, Name: names[1]}); err != nil {
			return 0, 0, err
		}
	}
	served := func(claim *v1alpha1.SandboxClaim) bool { return claims.Serves(set, claim, namedExists) }
	for limit := burst; ; limit *= 2 {
		all, requeueAfter, hasMore := d.claims.askingFor(set.Namespace, names, served, limit, now)
		total, err := d.total(all, now)
		if err != nil {
			return 0, 0, err
		}
		if !hasMore || total >= burst {
			return min(total, burst), requeueAfter, nil // however many more wait
		}
	}
}

// total is for how many sandboxes claims wait, without those that they hold already.
func (d *demand) total(all []claimDemand, now time.Time) (int, error) {
	total := 0
	for _, waiting := range all {
		starting, err := d.startingFor(waiting.claim, now)
		if err != nil {
			return 0, err
		}
		total += max(waiting.replicas-starting, 0)
	}
	return total, nil
}

// startingFor is how many sandboxes a claim holds that do not count yet: it does not
// wait for others in their place.
func (d *demand) startingFor(claim *v1alpha1.SandboxClaim, now time.Time) (int, error) {
	sandboxes, err := d.indexes.boundTo(claim)
	if err != nil {
		return 0, err
	}
	starting := 0
	for _, sandbox := range sandboxes {
		if sandbox.Annotations[v1alpha1.AnnotationStarting] == "" || sandbox.DeletionTimestamp != nil {
			continue
		}
		if t := sandbox.Spec.ShutdownTime; t == nil || now.Before(t.Time) {
			starting++
		}
	}
	return starting, nil
}

func (d *demand) setExists(ctx context.Context, key types.NamespacedName) (bool, error) {
	err := d.client.Get(ctx, key, &v1alpha1.SandboxSet{}, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("getting SandboxSet %s: %w", key, err)
	}
	return err == nil, nil
}
