// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// claiming stores a claim, and waits for it where that is asked for. On an error it returns
// the claim as it was last seen, or nil if it is not known to be stored.
type claiming func(ctx context.Context, claims typed.SandboxClaimInterface, order *v1alpha1.SandboxClaim, wait bool,
	tell func(*v1alpha1.SandboxClaim)) (*v1alpha1.SandboxClaim, error)

var _ claiming = claimAndWait

const (
	// randomLetters are 60 bits, so that no name comes back.
	randomLetters = 12
	// lookTimeout is how long it may take to find out what an interrupted command has left.
	lookTimeout = 30 * time.Second
	// grace is how long after its claimTimeout a claim may take to say how it ended, and
	// its sandboxes to be ready.
	grace = 30 * time.Second
	// defaultClaimTimeout is the server's, for a claim that does not say.
	defaultClaimTimeout = time.Minute
)

// tries are those of a create whose answer is not known: about 7 s.
var tries = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6}

// newName returns a name for a claim of a pool. It is chosen before the first try, so that
// a try whose answer was lost can be repeated and binds once.
func newName(pool string) string {
	room := validation.DNS1123LabelMaxLength - randomLetters - 1
	prefix := strings.TrimRight(strings.ReplaceAll(pool[:min(len(pool), room)], ".", "-"), "-")
	return prefix + "-" + strings.ToLower(rand.Text()[:randomLetters])
}

// claimAndWait stores the claim order, which has a name, and with wait returns when it has
// ended. tell is called with each state of it that is seen before the last.
func claimAndWait(ctx context.Context, claims typed.SandboxClaimInterface, order *v1alpha1.SandboxClaim, wait bool,
	tell func(*v1alpha1.SandboxClaim)) (*v1alpha1.SandboxClaim, error) {
	claim, err := place(ctx, claims, order)
	if err != nil {
		if ctx.Err() == nil {
			return nil, err
		}
		return lookFor(ctx, claims, order), interrupted
	}
	if ended, err := outcome(claim); ended || !wait {
		return claim, err
	}
	return await(ctx, claims, claim, tell)
}

// place stores a claim, and tries again when it is not known whether it did.
func place(ctx context.Context, claims typed.SandboxClaimInterface, order *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	var stored *v1alpha1.SandboxClaim
	var last error
	lost := false // the answer of a try
	err := wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
		stored, last = claims.Create(ctx, order, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if lost && apierrors.IsAlreadyExists(last) {
			stored, last = ofOrder(ctx, claims, order, last)
		}
		if last == nil {
			return true, nil
		}
		lost = lost || isUnclear(last)
		if !isUnclear(last) {
			return false, last
		}
		return false, nil
	})
	if err != nil && last != nil && ctx.Err() == nil {
		err = last
	}
	return stored, err
}

// ofOrder reads the claim that a lost try has stored. exists is returned if it is another.
func ofOrder(ctx context.Context, claims typed.SandboxClaimInterface, order *v1alpha1.SandboxClaim, exists error) (*v1alpha1.SandboxClaim, error) {
	claim, err := claims.Get(ctx, order.Name, metav1.GetOptions{})
	if err == nil && (claim.Spec.TemplateName != order.Spec.TemplateName || wanted(claim) != wanted(order)) {
		return nil, exists
	}
	return claim, err
}

// isUnclear reports whether a request may have been carried out although it failed, and is
// worth another try.
func isUnclear(err error) bool {
	if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// lookFor reads what an interrupted create has stored, or returns nil.
func lookFor(ctx context.Context, claims typed.SandboxClaimInterface, order *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout) // ctx is over
	defer cancel()
	claim, err := claims.Get(ctx, order.Name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
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
