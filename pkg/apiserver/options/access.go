// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

const (
	// allowedTTL is how long a permission is remembered, so that one claim of a
	// user in five minutes waits for the cluster. It is kube-apiserver's own for
	// an authorizer that it has to ask. For who comes through the aggregator it
	// delays nothing: kube-apiserver asks again for every request.
	allowedTTL = 5 * time.Minute
	// deniedTTL is short, because people try again as soon as they are given a
	// right.
	deniedTTL = 5 * time.Second
	// tokenTTL is how long a token counts after it was last reviewed.
	tokenTTL = time.Minute
)

// healthPaths may be asked by anyone, so that probes need no certificate.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// onlyHealthForAnyone refuses anonymous requests, except for the health paths: also when a role in the cluster lets system:unauthenticated in,
// and when they come through the front proxy.
type onlyHealthForAnyone struct {
	authenticator.Request
}

// AuthenticateRequest implements authenticator.Request.
func (a onlyHealthForAnyone) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := a.Request.AuthenticateRequest(req)
	if err != nil || !ok || slices.Contains(healthPaths, req.URL.Path) {
		return response, ok, err
	}
	if response.User.GetName() == user.Anonymous || slices.Contains(response.User.GetGroups(), user.AllUnauthenticated) {
		return nil, false, nil
	}
	return response, true, nil
}

// namelessFirst asks about an object of any name before it asks about the one
// that is meant. Most rights are for all names, and the answer is remembered: a
// controller that writes the status of a thousand sandboxes asks once.
type namelessFirst struct {
	authorizer.Authorizer
}

// Authorize implements authorizer.Authorizer.
func (a namelessFirst) Authorize(ctx context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	if asked.IsResourceRequest() && asked.GetName() != "" {
		// A failure to answer is no answer: that about the name may be remembered.
		if decision, reason, _ := a.Authorizer.Authorize(ctx, anyName{asked}); decision == authorizer.DecisionAllow {
			return decision, reason, nil
		}
	}
	return a.Authorizer.Authorize(ctx, asked)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a namelessFirst) ConditionsAwareAuthorize(ctx context.Context, asked authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, asked))
}

// fairReviews limits how many rights of a user the cluster is asked for at a time. The client that asks has a
// rate limit, and serves who comes first: without this, a user who asks for thousands of rights makes all
// others wait behind them. More requests of that user wait.
type fairReviews struct {
	authorizer.Authorizer
	slots *fairness.Slots
}

const (
	// maxReviews is how many rights the cluster is asked for at a time, and maxReviewsOfUser how many of
	// them are of one user. At the rate of the client, 200 a second, these take 0.6 and 0.2 s.
	maxReviews       = 128
	maxReviewsOfUser = 32
)

func newFairReviews(inner authorizer.Authorizer) fairReviews {
	return fairReviews{inner, fairness.NewSlots(maxReviews, maxReviewsOfUser)}
}

// Authorize implements authorizer.Authorizer.
func (a fairReviews) Authorize(ctx context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	var name string
	if u := asked.GetUser(); u != nil {
		name = u.GetName()
	}
	release, err := a.slots.Wait(ctx, name)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("waiting for other reviews of user %q: %w", name, err)
	}
	defer release()
	return a.Authorizer.Authorize(ctx, asked)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a fairReviews) ConditionsAwareAuthorize(ctx context.Context, asked authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, asked))
}

// anyName are the attributes of the same request for every object, which is
// what an authorizer takes the empty name for.
type anyName struct {
	authorizer.Attributes
}

// GetName implements authorizer.Attributes.
func (anyName) GetName() string { return "" }
