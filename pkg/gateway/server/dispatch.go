// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
)

// dispatch returns the handler of all requests. Requests for a port of a sandbox go to the proxy, all
// others to the API.
func dispatch(api http.Handler, sandboxes *proxy.Proxy) http.Handler {
	toAPI, toSandbox := instrument(labelAPI, api), instrument(labelSandbox, sandboxes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sandboxes.Match(r) {
			toSandbox.ServeHTTP(w, r)
			return
		}
		toAPI.ServeHTTP(w, r)
	})
}
