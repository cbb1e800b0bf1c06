// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// failure turns the ways in which etcd ends a process into an error.
//
// etcd meets damaged data with a fatal log (which exits), a panic log (which
// panics), or a bare panic. The first two are caught by hooks in the logger on
// whatever goroutine they happen, and end only that goroutine; a bare panic, and
// a fault in the memory that a file is mapped to, is caught on the goroutine
// that starts etcd or works on its files, where the data is read.
type failure struct {
	errs chan error // capacity 1: only the first failure says something new
	dead atomic.Bool
	// logging is on between the start and the stop: what etcd logs in a start
	// that fails is in the error, and that closed listeners fail is no news.
	logging atomic.Bool
}

var _ zapcore.CheckWriteHook = (*failure)(nil)

func newFailure() *failure { return &failure{errs: make(chan error, 1)} }

func (f *failure) happened() bool { return f.dead.Load() }

func (f *failure) report(err error) {
	f.dead.Store(true)
	select {
	case f.errs <- err:
	default:
	}
}

// OnWrite is called by zap in place of os.Exit and panic.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	f.report(errors.New(describe(entry.Message, fields)))
	runtime.Goexit() // the code that logged it relies on not coming back
}

// guard runs work on etcd's data on a goroutine of its own, which a failure may end.
func guard[T any](ctx context.Context, f *failure, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		debug.SetPanicOnFault(true) // of this goroutine only
		defer func() {
			if r := recover(); r != nil {
				f.report(oneLine(fmt.Sprint(r)))
			}
		}()
		value, err := work()
		results <- result{value, err}
	}()
	var none T
	select {
	case r := <-results:
		return r.value, r.err
	case err := <-f.errs:
		return none, fmt.Errorf("%w: %w", errData, err)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// logger passes etcd's warnings and errors on to klog. What is worse than an
// error is not logged: it is returned.
func (f *failure) logger() *zap.Logger {
	core := klogCore{LevelEnabler: zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return (l == zapcore.WarnLevel || l == zapcore.ErrorLevel) && f.logging.Load()
	})}
	return zap.New(core, zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// harmless is what etcd logs at a first start, where it looks for something in
// its database that it is about to write. It tries again.
var harmless = []string{"Failed to detect schema version", "failed to update storage version"}

// klogCore is a zap core that writes to klog.
type klogCore struct {
	zapcore.LevelEnabler
	fields []zapcore.Field
}

var _ zapcore.Core = klogCore{}

func (c klogCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = append(slices.Clip(c.fields), fields...)
	return c
}

func (c klogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) && !slices.Contains(harmless, entry.Message) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c klogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	message := "etcd: " + describe(entry.Message, append(slices.Clip(c.fields), fields...))
	if entry.Level >= zapcore.ErrorLevel {
		klog.Error(message)
	} else {
		klog.Warning(message)
	}
	return nil
}

func (c klogCore) Sync() error { return nil }

// describe puts a log entry on one line.
func describe(message string, fields []zapcore.Field) string {
	enc := zapcore.NewMapObjectEncoder()
	var b strings.Builder
	b.WriteString(message)
	for _, field := range fields {
		field.AddTo(enc)
		if value, ok := enc.Fields[field.Key]; ok {
			fmt.Fprintf(&b, ", %s: %v", field.Key, value)
		}
	}
	return oneLine(b.String()).Error()
}

func oneLine(s string) error { return errors.New(strings.Join(strings.Fields(s), " ")) }
