// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxproxy

import (
	"io"
	"sync/atomic"
)

// watchedBody is the body of a request. begun is set when reading it begins, and done when it was read to
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
