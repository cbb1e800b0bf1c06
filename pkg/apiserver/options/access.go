// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/apiserver/limits"
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

// reviewQPS and reviewBurst limit how many rights the cluster is asked for a second, as the generic server does.
const reviewQPS, reviewBurst = 200, 400

// maxReviews is how many requests wait for that rate at a time, and maxReviewsOfUser how many of them are of one
// user. At the rate, these take 0.6 and 0.2 s.
const maxReviews, maxReviewsOfUser = 128, 32

// fairLimiter shares a rate limit among the users of requests. The limit serves who comes first: without this, a
// user who asks for thousands of rights makes all others wait behind them. More requests of that user wait here.
// limits.AccountOf says who a user counts for.
type fairLimiter struct {
	flowcontrol.RateLimiter
	slots *fairness.Slots
}

func newFairLimiter(inner flowcontrol.RateLimiter) fairLimiter {
	return fairLimiter{inner, fairness.NewSlots(maxReviews, maxReviewsOfUser)}
}

// Wait implements flowcontrol.RateLimiter.
func (l fairLimiter) Wait(ctx context.Context) error {
	var account string
	if u, ok := request.UserFrom(ctx); ok {
		account = limits.AccountOf(u.GetName())
	}
	release, err := l.slots.Wait(ctx, account)
	if err != nil {
		return fmt.Errorf("waiting for other reviews of %q: %w", account, err)
	}
	defer release()
	return l.RateLimiter.Wait(ctx)
}

// newAuthorizer returns the authorizer that the generic server makes of the same options, but that it shares its
// rate among users.
func newAuthorizer(o *genericoptions.DelegatingAuthorizationOptions) (authorizer.Authorizer, error) {
	paths, err := path.NewAuthorizer(o.AlwaysAllowPaths)
	if err != nil {
		return nil, err
	}
	all := []union.NamedAuthorizer{
		{AuthorizerName: "kubernetes.io/always-allow-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(o.AlwaysAllowGroups...)},
		{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
	}
	config, err := reviewsConfig(o)
	switch {
	case errors.Is(err, rest.ErrNotInCluster) && o.RemoteKubeConfigFileOptional:
		klog.InfoS("Asking no cluster for rights, because there is no kubeconfig for that")
		return union.New(all...)
	case err != nil:
		return nil, err
	}
	reviews, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	asking, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: reviews,
		AllowCacheTTL:             o.AllowCacheTTL,
		DenyCacheTTL:              o.DenyCacheTTL,
		WebhookRetryBackoff:       o.WebhookRetryBackoff,
	}.New()
	if err != nil {
		return nil, err
	}
	return union.New(append(all, union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: asking})...)
}

// reviewsConfig returns how the cluster is asked for rights.
func reviewsConfig(o *genericoptions.DelegatingAuthorizationOptions) (config *rest.Config, err error) {
	if o.RemoteKubeConfigFile != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.RemoteKubeConfigFile)
	} else {
		config, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.RateLimiter = newFairLimiter(flowcontrol.NewTokenBucketRateLimiter(reviewQPS, reviewBurst))
	config.Timeout = o.ClientTimeout
	return config, nil
}

// anyName are the attributes of the same request for every object, which is
// what an authorizer takes the empty name for.
type anyName struct {
	authorizer.Attributes
}

// GetName implements authorizer.Attributes.
func (anyName) GetName() string { return "" }
