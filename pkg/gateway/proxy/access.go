// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"
	"path"

	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// errForbidden refuses a request for a private sandbox.
var errForbidden = errors.New("this sandbox is private: send its traffic access token in header e2b-traffic-access-token")

// errInit refuses a call that sets the access token and the environment of an agent-runtime.
var errInit = errors.New("the agent-runtime of this sandbox is initialized by the API server alone")

// checkAccess returns an error if a request may not go to a port of a sandbox. isTrusted is false for what
// a private sandbox gets without a token: preflights, and requests to its agent-runtime, which checks its
// access token itself.
func (p *Proxy) checkAccess(r *http.Request, route routes.Route, port int) (isTrusted bool, err error) {
	switch {
	case !route.Private:
		return true, nil
	case port == RuntimePort:
		token, err := p.token(r, route, headerAccessToken)
		return err == nil && hmac.Equal([]byte(r.Header.Get(headerAccessToken)), []byte(token)), nil
	case isPreflight(r):
		return false, nil
	}
	token, err := p.token(r, route, headerTrafficToken)
	if err != nil {
		return false, err
	}
	if !hmac.Equal([]byte(r.Header.Get(headerTrafficToken)), []byte(mapping.TrafficToken(token))) {
		return false, errForbidden
	}
	return true, nil
}

// token returns the access token of a sandbox, to which the value of a header is compared. It returns an
// error if the request has no such header, if the sandbox has no token, or if that could not be read.
func (p *Proxy) token(r *http.Request, route routes.Route, header string) (string, error) {
	if r.Header.Get(header) == "" {
		return "", errForbidden
	}
	// The token may have to be read from the API.
	release, ok := p.checks.Take(lookups.SourceOf(r.Context()))
	if !ok {
		return "", fmt.Errorf("%w whose tokens are checked", errBusy)
	}
	defer release()
	token, err := p.options.Token(r.Context(), route)
	if err != nil {
		return "", fmt.Errorf("%w: its access token: %w", routes.ErrUnavailable, err)
	}
	if token == "" {
		return "", errForbidden
	}
	return token, nil
}

// isInit reports whether a request to a sandbox initializes its agent-runtime, in a path that the
// runtime may take for /init.
func isInit(r *http.Request, port int) bool {
	return port == RuntimePort && path.Clean("/"+r.URL.Path) == "/init"
}
