// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// stage is what a case runs on, or what all of them share. It is a testing.TB, because the
// helpers of tests that run programs want one. Its methods that fail end the case.
type stage struct {
	testing.TB // nothing: methods that are not needed are not there
	*settings
	*shared
	ctx      context.Context
	dir      string
	cleanups []func()
	failed   bool
}

// shared is what several cases use. The first that needs it makes it.
type shared struct {
	all       *stage // that of all cases
	inCluster *cluster
	gateway   *gateway
	empty     *residents
}

// failure is what a function ends with by check or got.
type failure struct{ error }

// check ends the case with an error, if there is one.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// got is a value, or the end of the case if there is an error.
func got[T any](value T, err error) T {
	check(err)
	return value
}

// catch, deferred, returns the failure that a function ended with as an error.
func catch(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = errors.Join(*err, f.error)
	default: // a bug, which must leave no process behind
		*err = fmt.Errorf("%v\n%s", f, debug.Stack())
	}
}

// run calls do, and then what is to be cleaned up, the last thing first.
func (t *stage) run(do func()) error {
	err := caught(do)
	t.failed = t.failed || err != nil
	for _, clean := range slices.Backward(t.cleanups) {
		err = errors.Join(err, caught(clean))
	}
	return err
}

func caught(do func()) (err error) {
	defer catch(&err)
	do()
	return nil
}

// Context implements testing.TB.
func (t *stage) Context() context.Context { return t.ctx }

// Helper implements testing.TB.
func (t *stage) Helper() {}

// Cleanup implements testing.TB.
func (t *stage) Cleanup(clean func()) { t.cleanups = append(t.cleanups, clean) }

// Failed implements testing.TB.
func (t *stage) Failed() bool { return t.failed }

// TempDir implements testing.TB. The folder is removed with all data.
func (t *stage) TempDir() string { return got(os.MkdirTemp(t.dir, "")) }

// Logf implements testing.TB.
func (t *stage) Logf(format string, args ...any) { logf(format, args...) }

// Fatal implements testing.TB.
func (t *stage) Fatal(args ...any) { check(errors.New(fmt.Sprint(args...))) }

// Fatalf implements testing.TB.
func (t *stage) Fatalf(format string, args ...any) { check(fmt.Errorf(format, args...)) }

// Errorf implements testing.TB.
func (t *stage) Errorf(format string, args ...any) { t.Fatalf(format, args...) }

const (
	poolTimeout  = 3 * time.Minute
	poolInterval = 50 * time.Millisecond
)

// await asks until the answer is yes.
func await(ctx context.Context, what string, ask func(context.Context) bool) {
	err := wait.PollUntilContextTimeout(ctx, poolInterval, poolTimeout, true, func(ctx context.Context) (yes bool, err error) {
		defer catch(&err)
		return ask(ctx), nil
	})
	if err != nil {
		check(fmt.Errorf("waiting until %s: %w", what, err))
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
