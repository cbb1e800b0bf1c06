// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// reviewsPerSecond is how many TokenReviews, and how many SubjectAccessReviews, are made
	// for metrics. Few read them, and answers are remembered.
	reviewsPerSecond, reviewsAtOnce = 10, 20
	reviewTimeout                   = 10 * time.Second
	// acceptedTTL is how long a token of metrics is good without asking again. Who may read
	// them, and who may not, are remembered for allowedTTL and deniedTTL.
	acceptedTTL = time.Minute
	allowedTTL  = 5 * time.Minute
	deniedTTL   = 30 * time.Second
)

// Metrics returns a handler that serves /metrics by another one, to users who may get that path in the cluster at
// config. It does what the filter of controller-runtime does (pkg/metrics/filters), with a guard, which has to know
// whether it was the token that was bad. Reviews have a limit of their own, whatever that of config is: they take
// nothing from what else the program asks.
func Metrics(log klog.Logger, config *rest.Config, client *http.Client, handler http.Handler, c clock.Clock) (http.Handler, error) {
	config = rest.CopyConfig(config)
	config.RateLimiter, config.QPS, config.Burst = nil, reviewsPerSecond, reviewsAtOnce
	tokenReviews, err := authenticationv1.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("client for TokenReviews: %w", err)
	}
	accessReviews, err := authorizationv1.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("client for SubjectAccessReviews: %w", err)
	}
	again := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	authentication, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: acceptedTTL,
		TokenAccessReviewClient: tokenReviews, TokenAccessReviewTimeout: reviewTimeout, WebhookRetryBackoff: again,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	authorization, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: accessReviews, AllowCacheTTL: allowedTTL, DenyCacheTTL: deniedTTL, WebhookRetryBackoff: again,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}
	guard := NewGuard(acceptedTTL, c)
	authentication = guard.Authenticator(authentication)
	mux := http.NewServeMux()
	mux.Handle("/metrics", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		response, ok, err := authentication.AuthenticateRequest(req)
		if err != nil || !ok {
			log.V(4).Info("Authentication failed", "reason", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decision, reason, err := authorization.Authorize(req.Context(), authorizer.AttributesRecord{
			User: response.User, Verb: strings.ToLower(req.Method), Path: req.URL.Path,
		})
		switch {
		case err != nil:
			log.Error(err, "Authorization failed", "user", response.User.GetName())
			http.Error(w, "Authorization failed", http.StatusInternalServerError)
		case decision != authorizer.DecisionAllow:
			log.V(4).Info("Authorization denied", "user", response.User.GetName(), "reason", reason)
			http.Error(w, "Forbidden", http.StatusForbidden)
		default:
			handler.ServeHTTP(w, req)
		}
	})))
	return mux, nil
}
