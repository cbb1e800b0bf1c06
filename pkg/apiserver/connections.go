// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"time"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

const (
	// connectionBytes is the memory reserved for a connection. One of HTTP/2 has a buffer of 256 KiB for a
	// frame, decompressed headers of up to 40 times what was sent, and up to 100 responses that are not read.
	connectionBytes = 4 << 20
	// minConnections and minLargeHeaders are for servers with little memory.
	minConnections, minLargeHeaders = 128, 16
	// connectionGrace is how long a connection is not closed for another after its last request was
	// handled. It is short: requests that are refused protect a connection as well.
	connectionGrace = 100 * time.Millisecond
)

// newConnections returns a pool for the memory of this process: before anything is known about a
// client, its connection takes memory.
func newConnections() *connections.Pool {
	limit, ok := memory.Limit()
	if !ok {
		limit = 4 << 30
	}
	open := max(int(limit/connectionBytes), minConnections)
	headers := max(open/8, minLargeHeaders)
	return connections.NewPool(
		connections.Limits{Open: open, ResponseGrace: connectionGrace, LargeHeaders: fairness.NewSources(headers, headers/4)},
		connections.Metrics{Open: connectionsOpen, Refused: connectionsRefused, Evicted: connectionsEvicted, LargeHeaders: largeHeadersRefused},
	)
}

// withConnections marks connections as busy while their requests are handled. It has to be outside of all
// other handlers.
func withConnections(handler http.Handler) http.Handler {
	return connections.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		inner := req.WithContext(req.Context())
		// net/http keeps the request until the client has read the response. Drop its large parts: its slot
		// is released already.
		defer func() {
			req.Header, req.URL, req.RequestURI, req.Host = nil, nil, "", ""
			if req.Method != http.MethodHead { // net/http reads it later
				req.Method = http.MethodGet
			}
		}()
		handler.ServeHTTP(w, inner)
	}))
}
