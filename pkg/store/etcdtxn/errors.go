// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrConflict is wrapped by every *ConflictError.
	ErrConflict = errors.New("an object of the transaction has been modified")

	// ErrTooLarge means that etcd would not take the transaction for its size
	// or its number of operations. Nothing was written.
	ErrTooLarge = errors.New("the transaction is larger than etcd takes")

	// ErrUnknownOutcome means that etcd did not answer: the transaction may
	// have been written, may be written later, or never.
	ErrUnknownOutcome = errors.New("etcd did not say whether the transaction was written")
	// ErrNoSpace means that etcd has reached its quota. etcd answers so to the transaction
	// that reaches the quota, which it has written, and to all later ones, which it does not
	// write. So Commit returns it together with ErrUnknownOutcome. In both cases nothing is
	// written after that answer.
	ErrNoSpace = errors.New("etcd has no space left")
)

// Modified is an object that was not at the revision that the transaction expects.
type Modified struct {
	// Index counts the objects of the transaction in the order they were added.
	Index int
	// ModRevision is the object's revision in etcd; 0 where there is no object.
	ModRevision int64
}

// ConflictError means that etcd refused the transaction, and wrote nothing,
// because of the objects in Modified, which has all of them.
type ConflictError struct {
	Modified []Modified
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: %d of them", ErrConflict, len(e.Modified))
}

// Unwrap makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// errWritten means that the transaction was written, and that something failed afterwards.
var errWritten = errors.New("the transaction was written")

// NothingWritten reports whether an error of Commit means that the transaction was not written, and
// will not be. After ErrNoSpace it may have been written.
func NothingWritten(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, errWritten)
}

// classify distinguishes refusals, after which nothing was written, from a lost answer.
//
// etcd's client retries a transaction by itself only where it was certainly
// never sent. All else that is not a clear refusal by the server (a timeout, a
// lost connection, a change of leader) leaves the outcome open.
func classify(err error) error {
	switch {
	case IsTooLarge(err):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w: %w", ErrUnknownOutcome, ErrNoSpace, err)
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("etcd refused the transaction: %w", err)
	}
	code := status.Code(err)
	if etcdErr, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = etcdErr.Code()
	}
	// ResourceExhausted is not among them: gRPC also returns it for requests that were cut off.
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.NotFound, codes.Unimplemented:
		return fmt.Errorf("etcd refused the transaction: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// IsTooLarge reports whether an error of etcd's client means that a request was too large.
func IsTooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps) || largerThanMessages(err)
}

// largerThanMessages reports whether gRPC did not send, or not accept, a request
// for its size, which it reports in words only.
func largerThanMessages(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "message larger than max")
}
