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
	// connectionBytes is how much memory a connection is allowed for at most. One of HTTP/2 has a
	// buffer for a frame, of 256 KiB, headers that may be forty times what was sent, and 100 requests
	// whose answers are not read.
	connectionBytes = 4 << 20
	// minConnections and minLargeHeaders are for servers with little memory.
	minConnections, minLargeHeaders = 128, 16
	// responseGrace is how long a connection is not closed for another after its last request was
	// handled. It is short: requests that are refused protect a connection as well.
	responseGrace = 100 * time.Millisecond
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
		connections.Limits{Open: open, ResponseGrace: responseGrace, LargeHeaders: fairness.NewSources(headers, headers/4)},
		connections.Metrics{Refused: connectionsRefused, Evicted: connectionsEvicted, LargeHeaders: largeHeadersRefused},
	)
}

// withConnections reports to a pool when the requests of its connections are handled. It has to be
// outside of all other handlers.
func withConnections(handler http.Handler, pool *connections.Pool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if conn := pool.Find(req); conn != nil {
			if !conn.StartRequest() {
				panic(http.ErrAbortHandler) // it is closed
			}
			defer conn.EndRequest()
		}
		inner := req.WithContext(req.Context())
		// Until the client has read the answer, the server keeps its request. It may be large, and it
		// had its slot until here.
		defer func() {
			req.Header, req.URL, req.RequestURI, req.Host = nil, nil, "", ""
			if req.Method != http.MethodHead { // of which the server asks later
				req.Method = http.MethodGet
			}
		}()
		handler.ServeHTTP(w, inner)
	})
}
