// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtxn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestClassify(t *testing.T) {
	errRefused := errors.New("neither too large nor unknown")
	tests := map[string]struct {
		err  error
		want error
	}{
		"too large":            {rpctypes.ErrRequestTooLarge, ErrTooLarge},
		"too many operations":  {rpctypes.ErrTooManyOps, ErrTooLarge},
		"wrapped":              {fmt.Errorf("x: %w", rpctypes.ErrTooManyOps), ErrTooLarge},
		"larger than we send":  {status.Error(codes.ResourceExhausted, "trying to send message larger than max (3 vs. 2)"), ErrTooLarge},
		"larger than it reads": {status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"), ErrTooLarge},

		"duplicate key":     {rpctypes.ErrDuplicateKey, errRefused},
		"no permission":     {rpctypes.ErrPermissionDenied, errRefused},
		"bad token":         {rpctypes.ErrInvalidAuthToken, errRefused},
		"too many requests": {rpctypes.ErrTooManyRequests, errRefused},
		"not a leader":      {rpctypes.ErrNotLeader, errRefused},
		"learner":           {rpctypes.ErrGRPCNotSupportedForLearner, errRefused},
		"no such method":    {status.Error(codes.Unimplemented, "unknown method Txn"), errRefused},

		"leader changed":  {rpctypes.ErrLeaderChanged, ErrUnknownOutcome},
		"no leader":       {rpctypes.ErrNoLeader, ErrUnknownOutcome},
		"timed out":       {rpctypes.ErrTimeout, ErrUnknownOutcome},
		"leader failed":   {rpctypes.ErrTimeoutDueToLeaderFail, ErrUnknownOutcome},
		"connection lost": {rpctypes.ErrTimeoutDueToConnectionLost, ErrUnknownOutcome},
		"stopped":         {rpctypes.ErrStopped, ErrUnknownOutcome},
		"unhealthy":       {rpctypes.ErrUnhealthy, ErrUnknownOutcome},
		"corrupt":         {rpctypes.ErrCorrupt, ErrUnknownOutcome},
		// The member that finds its quota exceeded while it applies the
		// transaction says so, and has written it.
		"no space":         {rpctypes.ErrNoSpace, ErrUnknownOutcome},
		"flow control":     {status.Error(codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM"), ErrUnknownOutcome},
		"cancelled":        {context.Canceled, ErrUnknownOutcome},
		"expired":          {context.DeadlineExceeded, ErrUnknownOutcome},
		"raw cancelled":    {status.Error(codes.Canceled, "grpc: the client connection is closing"), ErrUnknownOutcome},
		"unavailable":      {status.Error(codes.Unavailable, "connection refused"), ErrUnknownOutcome},
		"internal":         {status.Error(codes.Internal, "stream terminated"), ErrUnknownOutcome},
		"end of the line":  {io.ErrUnexpectedEOF, ErrUnknownOutcome},
		"something unseen": {errors.New("something"), ErrUnknownOutcome},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := classify(tc.err)
			if known := !errors.Is(tc.want, ErrUnknownOutcome); NothingWritten(got) != known {
				t.Errorf("%v means that nothing was written: %t", got, !known)
			}
			if !errors.Is(got, tc.err) {
				t.Errorf("%v hides %v", got, tc.err)
			}
			for _, outcome := range []error{ErrTooLarge, ErrUnknownOutcome, ErrConflict} {
				if is, want := errors.Is(got, outcome), outcome == tc.want; is != want { //nolint:errorlint // compares sentinels of the table
					t.Errorf("%v is %q: %t, want %t", got, outcome, is, want)
				}
			}
		})
	}
}

func TestConflictError(t *testing.T) {
	err := fmt.Errorf("binding: %w", &ConflictError{Modified: []Modified{{0, 0}, {3, 17}}})
	if !errors.Is(err, ErrConflict) {
		t.Errorf("%v is no ErrConflict", err)
	}
	if got, want := err.Error(), "binding: an object of the transaction has been modified: 2 of them"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNothingWritten checks what other results of Commit mean.
func TestNothingWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"success":             {nil, false},
		"conflict":            {&ConflictError{}, true},
		"failed after commit": {fmt.Errorf("%w: %w", errWritten, errors.New("no revision")), false},
	} {
		if got := NothingWritten(tc.err); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
