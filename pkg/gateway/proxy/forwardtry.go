// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
)

// forwardTry is one try to forward a request to its sandbox. It is a value of the context of the request,
// so that ForwardError finds it.
type forwardTry struct {
	to destination
	// canRetry is true if the request may be tried once more when the sandbox turns out not to
	// run. ForwardError sets retryErr then, and writes no response.
	canRetry bool
	retryErr error
	body     *body
}

type contextKey int

const forwardTryKey contextKey = 0

// body is the body of a request. It knows whether anything of it was read. Close does not close it,
// because there may be another try.
type body struct {
	original io.ReadCloser
	read     atomic.Bool
}

// withBody replaces the body of a request by one for several tries.
func withBody(r *http.Request) *body {
	if r.Body == nil || r.Body == http.NoBody {
		return &body{original: http.NoBody}
	}
	b := &body{original: r.Body}
	r.Body = b
	return b
}

// Read implements io.Reader.
func (b *body) Read(into []byte) (int, error) {
	b.read.Store(true)
	return b.original.Read(into)
}

// Close implements io.Closer.
func (b *body) Close() error { return nil }

func (b *body) begun() bool { return b.read.Load() }

// end closes the original body. A connection to the sandbox may still try to read it.
func (b *body) end() { _ = b.original.Close() }
