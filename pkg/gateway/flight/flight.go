// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flight is singleflight whose work is cancelled when the last waiter gives up.
package flight

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Group is work that is going on, by key. The zero value is ready for use.
type Group[V any] struct {
	lock    sync.Mutex
	running map[string]*call[V]
}

// PanicError is the error of all callers of work that panicked.
type PanicError struct {
	// Recovered is the value that the work panicked with.
	Recovered any
	// Stack is where.
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Recovered, e.Stack) }

// call is one piece of work.
type call[V any] struct {
	cancel  context.CancelFunc
	waiters int
	done    chan struct{}
	value   V
	err     error
}

// Do returns what work returns. If work for the same key is running, Do waits for that instead. The context
// of the work has the values of the first caller, and is cancelled when the last caller gives up. Do
// returns the error of ctx when that ends. The last caller waits until the work has returned, so that no
// work continues without a caller.
func (g *Group[V]) Do(ctx context.Context, key string, work func(ctx context.Context) (V, error)) (V, error) {
	c := g.join(ctx, key, work)
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
	}
	if g.leave(key, c) {
		<-c.done
	}
	var none V
	return none, context.Cause(ctx)
}

// join adds a waiter to the work for a key. It starts the work if there is none.
func (g *Group[V]) join(ctx context.Context, key string, work func(ctx context.Context) (V, error)) *call[V] {
	g.lock.Lock()
	defer g.lock.Unlock()
	if c := g.running[key]; c != nil {
		c.waiters++
		return c
	}
	workCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call[V]{cancel: cancel, waiters: 1, done: make(chan struct{})}
	if g.running == nil {
		g.running = map[string]*call[V]{}
	}
	g.running[key] = c
	go func() {
		defer close(c.done)
		defer cancel()
		defer g.end(key, c)
		defer func() { // the callers get the panic as an error
			if recovered := recover(); recovered != nil {
				c.err = &PanicError{Recovered: recovered, Stack: debug.Stack()}
			}
		}()
		c.value, c.err = work(workCtx)
	}()
	return c
}

// leave removes a waiter. It reports whether it was the last; then the work is cancelled, and a later caller
// starts new work.
func (g *Group[V]) leave(key string, c *call[V]) (last bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if c.waiters--; c.waiters > 0 {
		return false
	}
	c.cancel()
	if g.running[key] == c {
		delete(g.running, key)
	}
	return true
}

// end removes work that is over from the group.
func (g *Group[V]) end(key string, c *call[V]) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.running[key] == c {
		delete(g.running, key)
	}
}
