// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	decoder := json.NewDecoder(http.MaxBytesReader(c.w, c.r.Body, maxBody))
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
	case errors.As(err, &large):
		return &Error{Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body is longer than %d bytes", maxBody)}
	}
	return &Error{Code: http.StatusBadRequest, Message: "the body is not the JSON that is expected: " + err.Error()}
}
