// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

const (
	// randomLetters are 60 bits, so that no name comes back.
	randomLetters = 12
	// retryFor is how long a server that gives no clear answer is asked again.
	retryFor = 10 * time.Second
	// grace is how long after its claimTimeout a claim may take to say how it ended, and
	// its sandboxes to be ready.
	grace = 30 * time.Second
	// defaultClaimTimeout is the server's, for a claim that does not say.
	defaultClaimTimeout = time.Minute
)

// newName returns a name for a claim of a pool. It is chosen before the first try, so that
// a try whose answer was lost can be repeated and binds once.
func newName(pool string) string {
	room := validation.DNS1123LabelMaxLength - randomLetters - 1
	prefix := strings.TrimRight(strings.ReplaceAll(pool[:min(len(pool), room)], ".", "-"), "-")
	return prefix + "-" + strings.ToLower(rand.Text()[:randomLetters])
}

// claimAndWait stores the claim order, which has a name, under a key that is new, and with wait returns when it has
// ended. tell is called with each state of it that is seen before the last. On an error it
// returns the claim as it was last seen, or nil if it is not known to be stored.
func claimAndWait(ctx context.Context, agents typed.AgentsV1alpha1Interface, order *v1alpha1.SandboxClaim, key string, wait bool,
	tell func(*v1alpha1.SandboxClaim)) (*v1alpha1.SandboxClaim, error) {
	claim, err := client.Create(ctx, agents, order, client.Options{Key: key, RetryFor: retryFor})
	switch {
	case err != nil && ctx.Err() != nil:
		return claim, interrupted
	case err != nil:
		return claim, err
	}
	if ended, err := outcome(claim); ended || !wait {
		return claim, err
	}
	return await(ctx, agents.SandboxClaims(order.Namespace), claim, tell)
}

// await returns when a claim has ended.
func await(ctx context.Context, claims typed.SandboxClaimInterface, claim *v1alpha1.SandboxClaim,
	tell func(*v1alpha1.SandboxClaim)) (*v1alpha1.SandboxClaim, error) {
	limit := defaultClaimTimeout
	if claim.Spec.ClaimTimeout != nil {
		limit = claim.Spec.ClaimTimeout.Duration
	}
	within, cancel := context.WithTimeout(ctx, limit+grace)
	defer cancel()
	last, uid := claim, claim.UID
	tell(claim)
	_, err := watchtools.UntilWithSync(within, watchOf(claims, claim.Name), &v1alpha1.SandboxClaim{}, nil,
		func(event watch.Event) (bool, error) {
			seen, ok := event.Object.(*v1alpha1.SandboxClaim)
			if !ok {
				return false, nil
			}
			if event.Type == watch.Deleted || seen.UID != uid {
				return false, fmt.Errorf("sandboxclaim %s/%s was deleted while it was waited for", claim.Namespace, claim.Name)
			}
			last = seen
			ended, err := outcome(seen)
			if !ended {
				tell(seen)
			}
			return ended, err
		})
	switch {
	case ctx.Err() != nil:
		return last, interrupted
	case wait.Interrupted(err):
		return last, fmt.Errorf("sandboxclaim %s/%s has %s sandboxes and is not ready after %s: %s",
			last.Namespace, last.Name, progress(last), limit+grace, words(last))
	}
	return last, err
}

// watchOf lists and watches one claim.
func watchOf(claims typed.SandboxClaimInterface, name string) cache.ListerWatcher {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return claims.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return claims.Watch(ctx, options)
		},
	}
}
