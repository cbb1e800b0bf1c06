// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"syscall"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// simulatedMessage is what a call of envd in a simulated sandbox is answered with.
const simulatedMessage = "this sandbox is simulated: nothing runs in it"

// SimulatedForwardError is ForwardError where sandboxes are simulated. Calls of envd, which nothing
// answers there, get an error that says so. SDKs take the 502 of ForwardError for a sandbox that
// has reached its timeout.
func SimulatedForwardError(w http.ResponseWriter, r *http.Request, err error) {
	try, _ := r.Context().Value(forwardTryKey).(*forwardTry)
	// By its health SDKs see whether the sandbox runs: it does not.
	if try == nil || try.to.port != v1alpha1.DefaultRuntimePort || !errors.Is(err, syscall.ECONNREFUSED) || strings.HasSuffix(r.URL.Path, "/health") {
		ForwardError(w, r, err)
		return
	}
	writeSimulated(w, r, try.to.id)
}

// Errors of the Connect protocol, by which SDKs call envd. That of a stream is its last message, whose
// flag is connectEnd.
const (
	connectFailed = `{"code":"unimplemented","message":"` + simulatedMessage + `"}`
	connectEnd    = 2
)

// writeSimulated writes the error in the form that the caller of envd reads.
func writeSimulated(w http.ResponseWriter, r *http.Request, id string) {
	code, contentType, body := http.StatusNotImplemented, "application/json", []byte(connectFailed)
	switch asked := r.Header.Get("Content-Type"); {
	case asked == "application/connect+json", asked == "application/connect+proto":
		end := `{"error":` + connectFailed + `}`
		code, contentType = http.StatusOK, asked
		body = append(binary.BigEndian.AppendUint32([]byte{connectEnd}, uint32(len(end))), end...)
	case r.Header.Get("Connect-Protocol-Version") == "":
		problem{Code: code, Message: simulatedMessage, SandboxID: id}.write(w)
		return
	}
	markGatewayResponse(w)
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}
