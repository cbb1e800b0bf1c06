// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
)

// attempt is one try to send a request to its sandbox.
type attempt struct {
	to destination
	// again is true if the request may be tried once more when the sandbox turns out not to
	// run; failed is set then, and nothing has been answered.
	again  bool
	failed error
	body   *body
}

// body is that of a request. It knows whether anything of it was read, and an attempt does
// not close it.
type body struct {
	whole io.ReadCloser
	read  atomic.Bool
}

// withBody puts a body into a request that can outlive an attempt.
func withBody(r *http.Request) *body {
	if r.Body == nil || r.Body == http.NoBody {
		return &body{whole: http.NoBody}
	}
	b := &body{whole: r.Body}
	r.Body = b
	return b
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	b.read.Store(true)
	return b.whole.Read(into)
}

// Close implements io.Closer.
func (b *body) Close() error { return nil }

func (b *body) begun() bool { return b.read.Load() }

// end closes the body: a connection to the sandbox may still try to read it.
func (b *body) end() { _ = b.whole.Close() }
