// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
)

// kind is what may follow a failed call.
type kind int

const (
	// unreachable is a call that another one may do better.
	unreachable kind = iota
	// rejected is an answer that would come again.
	rejected
	// unauthorized is the answer 401, or 409 of older versions of envd: the runtime has
	// another access token.
	unauthorized
	// wrongTarget is a runtime that must not be called where it is said to be.
	wrongTarget
	// unable is a call that this process cannot do at all, whichever runtime it is.
	unable
)

// Error is a call of a runtime that failed. It has nothing of what was sent, and nothing
// of what came back but the status.
type Error struct {
	kind    kind
	status  int
	message string
}

// Error implements error.
func (e *Error) Error() string { return e.message }

// IsUnauthorized reports whether a runtime was called that has another access token.
func IsUnauthorized(err error) bool { return is(err, unauthorized) }

// IsUnable reports whether this process cannot call runtimes of this kind at all, so that
// every other one would fail as well.
func IsUnable(err error) bool { return is(err, unable) }

// IsUnreachable reports whether a runtime was not reached, or answered 5xx: another call
// may do better.
func IsUnreachable(err error) bool { return is(err, unreachable) }

func is(err error, k kind) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.kind == k
}

func refused(message string) *Error { return &Error{kind: wrongTarget, message: message} }

// ofStatus is the error of an answer that is not 2xx.
func ofStatus(address string, status int) *Error {
	message := fmt.Sprintf("the agent-runtime at %s answered %d", address, status)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusConflict:
		return &Error{unauthorized, status, message + ": it has another access token, so another caller has initialized it"}
	case status >= http.StatusInternalServerError:
		return &Error{unreachable, status, message}
	}
	return &Error{rejected, status, message}
}

// ofCall is the error of a call that got no answer. Errors of net/http quote what a
// server sent that is no HTTP, which may be what it was sent before.
func ofCall(ctx context.Context, address string, err error) *Error {
	message := fmt.Sprintf("the agent-runtime at %s ", address)
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var network *net.OpError
	switch {
	case errors.Is(err, errNoCertificates):
		return &Error{kind: unable, message: message + "speaks TLS, and this server has no certificates for that: set --runtime-ca-file, --runtime-client-cert-file and --runtime-client-key-file"}
	case errors.Is(err, errBadCertificates):
		return &Error{kind: unreachable, message: message + "speaks TLS, and the certificates of this server for that cannot be read"}
	case errors.As(err, &certificate):
		return &Error{kind: unreachable, message: fmt.Sprintf("%shas a certificate that is not valid for %s or not of the CA for runtimes", message, ServerName)}
	case errors.As(err, &alert):
		return &Error{kind: unreachable, message: fmt.Sprintf("%srefused the TLS connection (alert %d): it may not take this server's client certificate", message, uint8(alert))}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{kind: unreachable, message: message + "refused the connection"}
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return &Error{kind: unreachable, message: message + "did not answer in time"}
	case errors.As(err, &network) && network.Op == "dial":
		return &Error{kind: unreachable, message: message + "could not be connected to"}
	}
	return &Error{kind: unreachable, message: message + "closed the connection or answered something that is not HTTP"}
}
