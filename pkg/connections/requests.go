// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"net/http"
	"time"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// HeaderLimits bound the headers of a request as a handler gets them. net/http bounds only the bytes that are
// received. In memory each field takes about 150 bytes more, so a few KiB of short fields would take hundreds.
type HeaderLimits struct {
	// Fields is how many fields of different names there may be.
	Fields int
	// Bytes is how many bytes all names and values may have, the URL and the host included. Each value counts for
	// valueBytes more, which it takes in memory although it is empty.
	Bytes int
}

const valueBytes = 32

// allow reports whether the headers of a request are within the limits.
func (l HeaderLimits) allow(req *http.Request) bool {
	if len(req.Header) > l.Fields {
		return false
	}
	left := l.Bytes - len(req.RequestURI) - len(req.Host)
	for name, values := range req.Header {
		for _, value := range values {
			left -= len(name) + len(value) + valueBytes
		}
	}
	return left >= 0
}

// Handler marks the connection of each request as busy while handler handles it. It aborts requests whose
// connection is closed already, and answers those beyond the limits with 431. When the handler has returned, it
// drops the large parts of the request, because net/http keeps it until the client has read the response. It has to
// be outside of all other handlers.
func Handler(handler http.Handler, limits HeaderLimits) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		conn := Find(req)
		if conn != nil && !conn.StartRequest() {
			panic(http.ErrAbortHandler)
		}
		handle(handler, limits, w, req, conn)
		if conn != nil && req.ProtoMajor >= 2 {
			conn.finish(w)
		}
	})
}

// handle handles a request, which ends for the pool when it returns.
func handle(handler http.Handler, limits HeaderLimits, w http.ResponseWriter, req *http.Request, conn *Conn) {
	if conn != nil {
		defer conn.EndRequest()
	}
	defer drop(req)
	if !limits.allow(req) {
		if req.ProtoMajor == 1 { // over HTTP/2 it would end a connection that other users may share
			w.Header().Set("Connection", "close")
		}
		http.Error(w, http.StatusText(http.StatusRequestHeaderFieldsTooLarge), http.StatusRequestHeaderFieldsTooLarge)
		return
	}
	handler.ServeHTTP(w, req.WithContext(req.Context()))
}

// drop drops what a request holds that net/http does not read any more.
func drop(req *http.Request) {
	req.Header, req.URL, req.RequestURI, req.Host = nil, nil, "", ""
	if req.Method != http.MethodHead { // net/http reads it later
		req.Method = http.MethodGet
	}
}

// UnreadLimits bound the responses of HTTP/2 whose handlers have returned and that their clients do not read. Each
// keeps a stream, with its goroutine and buffers.
type UnreadLimits struct {
	// Slots are taken, by source, by responses that are not read within After. A connection with a response that
	// gets none is closed. Nil is no limit.
	Slots *fairness.Sources
	After time.Duration
}

// finish sends what is left of a response of HTTP/2, and returns when the client has read it or the write deadline
// is over.
func (c *Conn) finish(w http.ResponseWriter) {
	unread := c.pool.limits.Unread
	if unread.Slots == nil {
		return
	}
	release := make(chan func(), 1)
	timer := time.AfterFunc(unread.After, func() {
		slot, ok := unread.Slots.Take(c.source)
		if !ok {
			c.pool.metrics.Unread.Inc()
			_ = c.Close()
			slot = func() {}
		}
		release <- slot
	})
	_ = http.NewResponseController(w).Flush() // the client is gone, or does not read
	if !timer.Stop() {
		(<-release)()
	}
}
