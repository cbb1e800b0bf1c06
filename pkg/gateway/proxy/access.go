// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

// errForbidden refuses a request for a private sandbox.
var errForbidden = errors.New("this sandbox is private: send its traffic access token in header e2b-traffic-access-token")

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
