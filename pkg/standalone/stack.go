// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// stack runs the parts of a process, of which each needs those below it. They
// are started from below and stopped from above, each waited for. If one ends
// by itself, that is the end of the run.
type stack struct {
	// run ends when the caller wants it, or with a *partError as its cause.
	run   context.Context
	end   context.CancelCauseFunc
	parts []*part
}

type part struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{} // closed when the part has ended
	err    error         // why; to be read after done
}

// partError is a part that ended without being stopped.
type partError struct {
	name string
	err  error
}

func (e *partError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.err) }
func (e *partError) Unwrap() error { return e.err }

func newStack(ctx context.Context) *stack {
	run, end := context.WithCancelCause(ctx)
	return &stack{run: run, end: end}
}

// start runs a part on top of the others until it is stopped. The end of the
// run does not cancel its context: the parts above it go first.
func (s *stack) start(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.run))
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	s.parts = append(s.parts, p)
	go func() {
		defer close(p.done)
		err := run(ctx)
		switch {
		case ctx.Err() == nil && err == nil:
			s.end(&partError{name, errors.New("stopped unexpectedly")})
		case ctx.Err() == nil:
			s.end(&partError{name, err})
		case err != nil && !errors.Is(err, context.Canceled):
			p.err = fmt.Errorf("stopping %s: %w", name, err)
		}
	}()
}

// wait returns at the end of the run, with an error if a part was the reason.
func (s *stack) wait() error {
	<-s.run.Done()
	if failed, ok := errors.AsType[*partError](context.Cause(s.run)); ok {
		return failed
	}
	return nil
}

// stop stops all parts and returns the errors of those that did not stop well.
func (s *stack) stop() error {
	defer s.end(nil)
	var errs []error
	for _, p := range slices.Backward(s.parts) {
		p.cancel()
		<-p.done
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}
