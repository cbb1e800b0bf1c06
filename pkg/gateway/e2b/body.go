// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxBody is how many bytes the body of a request may have.
	maxBody = 256 << 10
	// readTimeout is how long the body of a request may take to arrive. What a handler has not read of
	// it may take as long once the response is written.
	readTimeout = 15 * time.Second
)

// setReadDeadline limits how long the rest of a request may take to arrive. Clear the deadline before
// the request is processed: when it passes, the server assumes that the client is gone.
// Errors are ignored: a ResponseWriter of a test has no deadlines, and needs none.
func setReadDeadline(w http.ResponseWriter, at time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(at)
}

// decodeBody decodes the JSON body of a request. An empty body is an empty object. Unknown fields are
// ignored, because newer SDKs may send them, unless set changes that. decodeBody reads the body to its
// end, and checks the key of the caller again.
func (c *call) decodeBody(into any, set ...func(*json.Decoder)) error {
	setReadDeadline(c.w, clock.RealClock{}.Now().Add(c.api.readTimeout))
	defer setReadDeadline(c.w, time.Time{})
	body := &readErrors{Reader: http.MaxBytesReader(c.w, c.r.Body, maxBody)}
	decoder := json.NewDecoder(body)
	for _, change := range set {
		change(decoder)
	}
	err := decoder.Decode(into)
	if err == nil {
		// The server notices that the client goes away only after the end of the body.
		if _, err = decoder.Token(); err == nil {
			err = errors.New("there is more than one JSON value")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return c.checkKey()
	case errors.As(body.err, &large):
		return &Error{Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body is longer than %d bytes", maxBody)}
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		return &Error{Code: http.StatusRequestTimeout, Message: fmt.Sprintf("the body did not arrive within %s", c.api.readTimeout)}
	case body.err != nil:
		// The text of the error may have addresses of the gateway.
		return &Error{Code: http.StatusBadRequest, Message: "the body was cut off"}
	}
	return &Error{Code: http.StatusBadRequest, Message: "the body is not the JSON that is expected: " + err.Error()}
}

// readErrors is a reader that keeps the error of a read that failed.
type readErrors struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (r *readErrors) Read(into []byte) (int, error) {
	n, err := r.Reader.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
