// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"time"

	"k8s.io/utils/clock"

	versioned "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/identity"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// requestTimeout limits a request that does not wait for a sandbox, and the write of one that does. SDKs wait as long for a response.
const requestTimeout = time.Minute

// Keys knows the API keys.
type Keys interface {
	Authenticate(ctx context.Context, raw string) (apikeys.Caller, error)
	Check(ctx context.Context, caller apikeys.Caller) error
	Issue(ctx context.Context, request apikeys.Request) (apikeys.Record, string, error)
	List(ctx context.Context, team string) ([]apikeys.Record, error)
	Delete(ctx context.Context, caller apikeys.Caller, id string) error
}

// Options are what an API is made with.
type Options struct {
	// Keys knows the API keys.
	Keys Keys
	// Allow reports whether a key may make a request now. If not, it returns when.
	Allow func(caller apikeys.Caller) (ok bool, retryAfter time.Duration)
	// Clients returns the client that acts for a team.
	Clients func(team string) (versioned.Interface, error)
	// Limits bound what requests ask for.
	Limits mapping.Limits
	// Domain is reported to clients: sandboxes are reached below it. It may be empty.
	Domain string
	// EnvdVersion is reported to clients, which decide by it what envd can do.
	EnvdVersion string
	// CanCreateKeys reports whether keys may create keys of their team through the API.
	CanCreateKeys bool
	// MaxAPIRequests is how many requests are processed at a time. A team has at most what it
	// leaves free for others.
	MaxAPIRequests int
	// WaitUntilStopped waits until the proxy knows that the sandbox of an id does not run any
	// more, for a moment at most; nil waits for nothing.
	WaitUntilStopped func(ctx context.Context, id string)
	// Clock is the time of day.
	Clock clock.PassiveClock
}

// API serves the E2B API.
type API struct {
	options Options
	// requestSlots are the slots of all requests, listSlots of those that read lists, and
	// waitSlots of those that wait for a sandbox. A request that waits has released its slot in
	// requestSlots.
	requestSlots, listSlots, waitSlots *fairness.Slots
	// largeResponseSlots are the slots of large responses of the API server. Requests wait for
	// them.
	largeResponseSlots *fairness.Slots

	mux *http.ServeMux
	// readTimeout is the constant readTimeout, unless a test sets it.
	readTimeout time.Duration
}

// New returns an API.
func New(options Options) *API {
	a := &API{
		options:            options,
		requestSlots:       fairness.NewSlots(options.MaxAPIRequests, options.MaxAPIRequests),
		listSlots:          fairness.NewSlots(listsAtOnce, listsPerTeam),
		waitSlots:          fairness.NewSlots(options.MaxAPIRequests, options.MaxAPIRequests),
		largeResponseSlots: fairness.NewSlots(largeAtOnce, largeAtOnce),
		mux:                http.NewServeMux(),
		readTimeout:        readTimeout,
	}
	for _, endpoint := range Endpoints() {
		a.mux.Handle(endpoint.Method+" "+endpoint.Path, a.handler(endpoint))
	}
	return a
}

// ServeHTTP answers one request. All errors are in JSON.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, mapping.APIPrefix); ok && (rest == "" || rest[0] == '/') {
		r = withPath(r, rest)
	}
	// The mux would redirect a path that is not clean.
	clean := path.Clean(r.URL.Path) == r.URL.Path
	if _, pattern := a.mux.Handler(r); pattern != "" && clean {
		a.mux.ServeHTTP(w, r)
		return
	}
	// Without a key the response does not say which paths there are.
	if _, err := a.authenticate(r); err != nil {
		writeError(w, err)
		return
	}
	if methods := a.methods(r); len(methods) > 0 && clean {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeError(w, &Error{Code: http.StatusMethodNotAllowed, Message: r.Method + " is not allowed for " + quoted(r.URL.Path)})
		return
	}
	writeError(w, &Error{Code: http.StatusNotFound, Message: "there is no path " + quoted(r.URL.Path) + " in this API"})
}

// methods returns the methods that the path of a request has.
func (a *API) methods(r *http.Request) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := a.mux.Handler(&other); pattern != "" {
			methods = append(methods, method)
		}
	}
	return methods
}

func withPath(r *http.Request, path string) *http.Request {
	next := r.Clone(r.Context())
	next.URL.Path, next.URL.RawPath = path, strings.TrimPrefix(r.URL.RawPath, mapping.APIPrefix)
	if path == "" {
		next.URL.Path = "/"
	}
	return next
}

// handler returns the handler of an endpoint. It authenticates requests and limits how many are
// processed at a time.
func (a *API) handler(endpoint Endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var caller apikeys.Caller
		if !endpoint.isPublic {
			var err error
			if caller, err = a.authenticate(r); err != nil {
				writeError(w, err)
				return
			}
		}
		switch {
		case endpoint.Unserved != "":
			writeError(w, &Error{Code: http.StatusNotImplemented, Message: (&mapping.UnservedError{What: endpoint.Unserved}).Error()})
			return
		case endpoint.serve == nil:
			writeEmpty(w, http.StatusOK)
			return
		}
		release, ok := a.requestSlots.Take(caller.Team)
		if !ok {
			writeError(w, &Error{Code: http.StatusTooManyRequests, Message: "too many requests of this team at a time", RetryAfter: time.Second})
			return
		}
		defer release()
		client, err := a.options.Clients(caller.Team)
		if err != nil {
			writeError(w, unavailable(r, err))
			return
		}
		ctx := identity.WithKeyID(r.Context(), caller.KeyID)
		if !endpoint.waits {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, requestTimeout)
			defer cancel()
		}
		r = r.WithContext(ctx)
		c := &call{api: a, w: w, r: r, caller: caller, release: release, cluster: &teamClient{api: a, agents: client.AgentsV1alpha1(), team: caller.Team}}
		if err := endpoint.serve(c); err != nil {
			writeError(w, c.toError(err))
		}
	})
}

// authenticate returns the caller whose key a request has. It also applies the rate limit of the key
// and of its team.
func (a *API) authenticate(r *http.Request) (apikeys.Caller, error) {
	raw := r.Header.Values("X-Api-Key")
	if len(raw) != 1 || raw[0] == "" {
		return apikeys.Caller{}, &Error{Code: http.StatusUnauthorized, Message: "the header X-API-Key must have one API key"}
	}
	caller, err := a.options.Keys.Authenticate(r.Context(), raw[0])
	if err != nil {
		return apikeys.Caller{}, authenticationError(r, err)
	}
	if ok, after := a.options.Allow(caller); !ok {
		return apikeys.Caller{}, &Error{Code: http.StatusTooManyRequests, Message: "too many requests with this API key, or of its team", RetryAfter: after}
	}
	return caller, nil
}

// authenticationError returns the *Error for an error of Authenticate.
func authenticationError(r *http.Request, err error) error {
	var known *Error
	switch {
	case errors.As(fromKeyError(err), &known):
		return known
	case r.Context().Err() != nil:
		return &Error{Code: http.StatusServiceUnavailable, Message: "the request was given up"}
	}
	return unavailable(r, err)
}
