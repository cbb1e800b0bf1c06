// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import "net/http"

// outgoing returns the request as it goes to the sandbox: without what is for the gateway.
func outgoing(r *http.Request, to destination) (*http.Request, error) {
	out := r.Clone(r.Context())
	for _, name := range []string{headerSandboxID, headerSandboxPort, headerTrafficToken, headerAPIKey} {
		out.Header.Del(name)
	}
	if to.port != RuntimePort {
		out.Header.Del(headerAccessToken)
	}
	out.URL.Scheme, out.URL.Host = "", "" // of a request in absolute form; the host is in out.Host
	if to.form == byHost {
		return out, nil
	}
	// All sandboxes and the API share the host: its cookies are not this sandbox's.
	out.Header.Del("Cookie")
	if to.form == byHeaders {
		return out, nil
	}
	var err error
	out.URL, err = replacePath(out.URL, to.rest)
	return out, err
}
