// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"
	"path"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// errForbidden refuses a request for a private sandbox.
var errForbidden = errors.New("this sandbox is private: send its traffic access token in header e2b-traffic-access-token")

// errInit refuses a call that sets the access token and the environment of an agent-runtime.
var errInit = errors.New("the agent-runtime of this sandbox is initialized by the API server alone")

// checkAccess returns an error if a request may not go to a port of a sandbox.
func (p *Proxy) checkAccess(r *http.Request, route routes.Route, port int) error {
	if !route.Private || port == RuntimePort || isPreflight(r) {
		return nil
	}
	shown := r.Header.Get(headerTrafficToken)
	if shown == "" {
		return errForbidden
	}
	token, err := p.options.Token(r.Context(), route)
	if err != nil {
		return fmt.Errorf("%w: its access token: %w", routes.ErrUnavailable, err)
	}
	if token == "" || !hmac.Equal([]byte(shown), []byte(mapping.TrafficToken(token))) {
		return errForbidden
	}
	return nil
}

// mayResume reports whether a request may resume a paused sandbox. A preflight, which needs no token, must
// not resume a private one, nor must a request to its agent-runtime without the access token.
func (p *Proxy) mayResume(r *http.Request, route routes.Route, port int) bool {
	if !route.AutoResume || route.Private && isPreflight(r) {
		return false
	}
	if !route.Private || port != RuntimePort || route.State != routes.Paused {
		return true
	}
	shown := r.Header.Get(headerAccessToken)
	token, err := p.options.Token(r.Context(), route)
	return err == nil && token != "" && hmac.Equal([]byte(shown), []byte(token))
}

// isInit reports whether a request to a sandbox initializes its agent-runtime, in a path that the
// runtime may take for /init.
func isInit(r *http.Request, port int) bool {
	return port == RuntimePort && path.Clean("/"+r.URL.Path) == "/init"
}
