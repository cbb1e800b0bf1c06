// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"context"
	"fmt"
	"net/http"
)

// newProbeTransport returns a transport for probeRuntime. It keeps no connections.
func (p *Proxy) newProbeTransport() *http.Transport {
	t := p.newHTTP1Transport()
	t.DialContext = p.dialer.DialContext
	t.DisableKeepAlives = true
	return t
}

// probeRuntime returns an error unless the agent-runtime at a host refuses a request without its access
// token. A runtime that was restarted has no token, and takes commands from everyone, until it
// is set up again.
//
// The caller has a connection to the runtime already, and sends nothing on it before. The probe has a
// connection of its own, so it works for HTTP/1.1 and HTTP/2, and whatever becomes of the
// connection after the response. The connection of the caller is older, so it leads to the runtime that
// was probed, or to one before it, which closed its connections when it ended.
func (p *Proxy) probeRuntime(ctx context.Context, host, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return err
	}
	response, err := p.probes.RoundTrip(request) // which follows no redirect
	if err != nil {
		return err
	}
	_ = response.Body.Close() // the answer is in the status
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil
	}
	return fmt.Errorf("%w: it answers %d to a request without a token", ErrRuntimeNotSetUp, response.StatusCode)
}
