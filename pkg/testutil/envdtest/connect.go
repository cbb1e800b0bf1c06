// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxMessage is how long a message may be.
const maxMessage = 4 << 20

// endOfStream is the flag of the last envelope of a stream.
const endOfStream = 2

// rpcError is what a call fails with.
type rpcError struct {
	status        int
	code, message string
}

func (e *rpcError) Error() string { return e.code + ": " + e.message }

func notFound(path string) error {
	return &rpcError{http.StatusNotFound, "not_found", fmt.Sprintf("path not found: %s", path)}
}

// unary is a call of the connect protocol that has one message and one answer, in JSON.
func unary[Request any](call func(*Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request := new(Request)
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(request); err != nil {
			writeError(w, http.StatusBadRequest, "invalid_argument", err.Error())
			return
		}
		answer, err := call(request)
		var failed *rpcError
		switch {
		case errors.As(err, &failed):
			writeError(w, failed.status, failed.code, failed.message)
		case err != nil:
			writeError(w, http.StatusInternalServerError, "internal", err.Error())
		default:
			writeJSON(w, http.StatusOK, answer)
		}
	}
}

// readEnvelope reads the one message of a stream's request.
func readEnvelope(r io.Reader, into any) error {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("reading the envelope: %w", err)
	}
	length := binary.BigEndian.Uint32(head[1:])
	if head[0] != 0 || length > maxMessage {
		return fmt.Errorf("an envelope with flags %d and %d bytes", head[0], length)
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(r, message); err != nil {
		return fmt.Errorf("reading the message: %w", err)
	}
	return json.Unmarshal(message, into)
}

// stream is the answer to a call that has many.
type stream struct{ w http.ResponseWriter }

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "application/connect+json")
	return &stream{w}
}

// send sends a message at once. What it returns says that the client is gone.
func (s *stream) send(flags byte, content any) error {
	message, err := json.Marshal(content)
	if err != nil {
		return err
	}
	var envelope bytes.Buffer
	envelope.WriteByte(flags)
	_ = binary.Write(&envelope, binary.BigEndian, uint32(len(message))) // to memory
	envelope.Write(message)
	if _, err := s.w.Write(envelope.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// event sends an event of a process.
func (s *stream) event(name string, content any) error {
	return s.send(0, map[string]any{"event": map[string]any{name: content}})
}
