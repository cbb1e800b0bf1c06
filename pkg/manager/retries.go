// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"net/http"
	"strings"
)

// withoutCreateRetries keeps clients from repeating the creates of sandboxes that are rejected with
// 429, for minutes, while they hold a worker. The queues of controllers do that.
type withoutCreateRetries struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t withoutCreateRetries) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/sandboxes") {
		resp.Header.Del("Retry-After") // the error has it as well
	}
	return resp, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t withoutCreateRetries) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
