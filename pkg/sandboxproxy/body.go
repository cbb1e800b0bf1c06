// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"io"
	"sync/atomic"
)

// watchedBody is the body of a request. It knows whether reading it has begun, and whether it was read to
// its end.
type watchedBody struct {
	io.ReadCloser
	begun, done atomic.Bool
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.begun.Store(true)
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.done.Store(true)
	}
	return n, err
}
