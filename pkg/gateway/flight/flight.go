// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flight answers many who ask the same at the same time with one piece of work.
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

// PanicError is the panic of a piece of work, for all who wait for it.
type PanicError struct {
	// What the work panicked with.
	What any
	// Stack is where.
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.What, e.Stack) }

// call is one piece of work.
type call[V any] struct {
	cancel  context.CancelFunc
	waiters int
	done    chan struct{}
	value   V
	err     error
}

// Do returns what work returns, and joins work for the same key that goes on already. The
// work goes on while anyone waits for it: its context ends with the last who gives up, and
// has the values of the first who asked. Do returns the error of ctx when that ends. The
// last one waits until the work has seen that, so that no work goes on by itself.
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

// join takes part in the work for a key, and begins it if there is none.
func (g *Group[V]) join(ctx context.Context, key string, work func(ctx context.Context) (V, error)) *call[V] {
	g.lock.Lock()
	defer g.lock.Unlock()
	if c := g.running[key]; c != nil {
		c.waiters++
		return c
	}
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call[V]{cancel: cancel, waiters: 1, done: make(chan struct{})}
	if g.running == nil {
		g.running = map[string]*call[V]{}
	}
	g.running[key] = c
	go func() {
		defer close(c.done)
		defer cancel()
		defer g.end(key, c)
		defer func() { // those who wait have the panic, not the process
			if what := recover(); what != nil {
				c.err = &PanicError{What: what, Stack: debug.Stack()}
			}
		}()
		c.value, c.err = work(whole)
	}()
	return c
}

// leave gives up waiting. It reports whether no caller waits any more; then the work is
// ended, and a later caller begins new work.
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

// end takes work that is over out of the group.
func (g *Group[V]) end(key string, c *call[V]) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.running[key] == c {
		delete(g.running, key)
	}
}
