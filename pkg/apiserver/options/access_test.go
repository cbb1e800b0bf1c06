// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/flowcontrol"
)

func TestOnlyHealthForAnyone(t *testing.T) {
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	failed := errors.New("bad certificate")
	cases := map[string]struct {
		who  user.Info // nil: no user
		err  error
		path string
		want bool
	}{
		"a user":                    {who: &user.DefaultInfo{Name: "ann"}, path: "/apis", want: true},
		"a user, health":            {who: &user.DefaultInfo{Name: "ann"}, path: "/healthz", want: true},
		"anonymous":                 {who: anonymous, path: "/apis/agents.kruise.io/v1alpha1"},
		"anonymous, /":              {who: anonymous, path: "/"},
		"anonymous, readyz":         {who: anonymous, path: "/readyz", want: true},
		"anonymous, livez":          {who: anonymous, path: "/livez", want: true},
		"anonymous, one check":      {who: anonymous, path: "/readyz/etcd"},
		"anonymous, looks alike":    {who: anonymous, path: "/readyz/../apis"},
		"by the name alone":         {who: &user.DefaultInfo{Name: user.Anonymous}, path: "/apis"},
		"by the group alone":        {who: &user.DefaultInfo{Name: "eve", Groups: []string{user.AllUnauthenticated}}, path: "/apis"},
		"no user":                   {path: "/readyz"},
		"a bad certificate, health": {who: anonymous, err: failed, path: "/readyz"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := onlyHealthForAnyone{authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				if tc.who == nil || tc.err != nil {
					return nil, false, tc.err
				}
				return &authenticator.Response{User: tc.who}, true, nil
			})}
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			req.URL.Path = tc.path
			response, ok, err := a.AuthenticateRequest(req)
			if !errors.Is(err, tc.err) || ok != tc.want || ok && response.User != tc.who {
				t.Errorf("got %v, %v, %v; want %v", response, ok, err, tc.want)
			}
		})
	}
}

func TestNamelessFirst(t *testing.T) {
	const allow, none, deny = authorizer.DecisionAllow, authorizer.DecisionNoOpinion, authorizer.DecisionDeny
	down := errors.New("the cluster does not answer")
	type answer struct {
		decision authorizer.Decision
		err      error
	}
	cases := map[string]struct {
		name    string
		path    bool // not a resource
		answers map[string]answer
		want    answer
		asked   []string
	}{
		"a collection":           {answers: map[string]answer{"": {allow, nil}}, want: answer{allow, nil}, asked: []string{""}},
		"all names":              {name: "a", answers: map[string]answer{"": {allow, nil}}, want: answer{allow, nil}, asked: []string{""}},
		"this name":              {name: "a", answers: map[string]answer{"": {none, nil}, "a": {allow, nil}}, want: answer{allow, nil}, asked: []string{"", "a"}},
		"another name":           {name: "b", answers: map[string]answer{"": {none, nil}, "b": {none, nil}}, want: answer{none, nil}, asked: []string{"", "b"}},
		"denied":                 {name: "b", answers: map[string]answer{"": {deny, nil}, "b": {deny, nil}}, want: answer{deny, nil}, asked: []string{"", "b"}},
		"no answer":              {name: "a", answers: map[string]answer{"": {deny, down}, "a": {deny, down}}, want: answer{deny, down}, asked: []string{"", "a"}},
		"no answer but a memory": {name: "a", answers: map[string]answer{"": {deny, down}, "a": {allow, nil}}, want: answer{allow, nil}, asked: []string{"", "a"}},
		"a path":                 {name: "a", path: true, answers: map[string]answer{"a": {allow, nil}}, want: answer{allow, nil}, asked: []string{"a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var asked []string
			a := namelessFirst{authorizer.AuthorizerFunc(func(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = append(asked, attributes.GetName())
				if attributes.GetVerb() != "update" || attributes.GetNamespace() != "team-a" {
					t.Errorf("asked about %q in %q", attributes.GetVerb(), attributes.GetNamespace())
				}
				given := tc.answers[attributes.GetName()]
				return given.decision, "because", given.err
			})}
			about := authorizer.AttributesRecord{Verb: "update", Namespace: "team-a", Name: tc.name, ResourceRequest: !tc.path}
			decision, reason, err := a.Authorize(t.Context(), about)
			if decision != tc.want.decision || !errors.Is(err, tc.want.err) || reason != "because" {
				t.Errorf("got %v, %q, %v; want %v", decision, reason, err, tc.want)
			}
			if len(asked) != len(tc.asked) {
				t.Errorf("asked about %q, want %q", asked, tc.asked)
			}
			if got := a.ConditionsAwareAuthorize(t.Context(), about); got.IsAllow() != (tc.want.decision == allow) {
				t.Errorf("conditions-aware: %v", got)
			}
		})
	}
}

// heldLimiter is a rate limiter that lets nothing through until it is released.
type heldLimiter struct {
	flowcontrol.RateLimiter
	began    chan string
	released chan struct{}
}

// Wait implements flowcontrol.RateLimiter.
func (l heldLimiter) Wait(ctx context.Context) error {
	u, _ := request.UserFrom(ctx)
	l.began <- u.GetName()
	<-l.released
	return nil
}

// TestFairReviews checks that of a user who asks for rights without end a bounded number of requests wait for the
// rate limit, so that others do not wait behind them, and that a request that is gone waits no more.
func TestFairReviews(t *testing.T) {
	held := heldLimiter{began: make(chan string, 3*maxReviewsOfUser), released: make(chan struct{})}
	limiter := newFairLimiter(held)
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(name string) error { return limiter.Wait(request.WithUser(ctx, &user.DefaultInfo{Name: name})) }
	const asked = 3 * maxReviewsOfUser
	const eve, namesake = "system:serviceaccount:team:eve", "system:serviceaccount:team:another"
	errs := make(chan error, asked+1)
	for i := range asked { // who can make one ServiceAccount makes many
		go func() { errs <- ask([]string{eve, namesake}[i%2]) }()
	}
	for range maxReviewsOfUser {
		if who := <-held.began; who != eve && who != namesake {
			t.Fatalf("%s is reviewed", who)
		}
	}
	go func() { errs <- ask("ann") }()
	if who := <-held.began; who != "ann" {
		t.Errorf("%s has more than %d reviews at a time", who, maxReviewsOfUser)
	}
	cancel()
	for range asked - maxReviewsOfUser { // those that wait
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("a request that is gone: %v", err)
		}
	}
	close(held.released)
	for range maxReviewsOfUser + 1 {
		if err := <-errs; err != nil {
			t.Errorf("a review: %v", err)
		}
	}
}
