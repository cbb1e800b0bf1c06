// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Between these shares of etcd's quota, limits are reduced step by step and history is
	// compacted early.
	throttleFrom, throttleTo = 0.60, 0.80
	// fullFrom is the share of etcd's quota from which all writes of users except deletes are
	// rejected. The rest is left for controllers and compaction.
	fullFrom = 0.90
	// growth weighs the database file near the quota: a file at 96% of the quota counts as
	// 1-2.5*0.04 = 90% used, even if most of it is free.
	growth = 2.5
)

// Limits are the write limits.
type Limits struct {
	// Namespace and User apply to each namespace and each user.
	Namespace, User Limit
}

// DefaultLimits let clients create objects of typical size at full speed for some minutes, and
// stay below what would fill etcd within the minute for which history is kept.
func DefaultLimits() Limits {
	limit := Limit{Rate: 8 << 20, Burst: 256 << 20}
	return Limits{Namespace: limit, User: limit}
}

// Limiter limits the bytes that are written to etcd for each namespace and user. It is safe for
// concurrent use. A write takes the locks of the buckets of its namespace and its user, one after
// the other.
type Limiter struct {
	clock             clock.PassiveClock
	namespaces, users buckets
	// written is how many bytes this server has written, and measured the last measurement of
	// etcd.
	written  atomic.Int64
	measured atomic.Pointer[measurement]
}

// measurement is how many bytes of etcd's quota are used. written is the value of
// Limiter.written before the measurement.
type measurement struct {
	used           float64
	quota, written int64
}

// New returns a Limiter. Until SetUsage is called, it assumes that etcd is empty.
func New(limits Limits, c clock.PassiveClock) *Limiter {
	registerMetrics()
	l := &Limiter{clock: c}
	l.namespaces.limit, l.users.limit = limits.Namespace, limits.User
	l.measured.Store(&measurement{})
	return l
}

// Write is a write that is about to be made.
type Write struct {
	// Namespace is the namespace of the objects, and User the user that the write counts for.
	// An empty Namespace or User is not counted.
	Namespace, User string
	Bytes           int
	// Exempt writes count but are never rejected.
	Exempt bool
}

// Take counts a write that is about to be made, or returns an *ExceededError.
func (l *Limiter) Take(w Write) error {
	p := l.pressure()
	if !w.Exempt && p.used >= fullFrom {
		return exceeded(&ExceededError{Scope: ScopeEtcd, RetryAfter: 10 * shortestWait, Used: p.used})
	}
	now, n := l.clock.Now(), int64(w.Bytes)
	if wait := l.namespaces.take(w.Namespace, now, p, n, w.Exempt); wait > 0 {
		return exceeded(&ExceededError{ScopeNamespace, w.Namespace, wait, l.namespaces.limit, p.reason()})
	}
	if wait := l.users.take(w.User, now, p, n, w.Exempt); wait > 0 {
		l.namespaces.refund(w.Namespace, n)
		return exceeded(&ExceededError{ScopeUser, w.User, wait, l.users.limit, p.reason()})
	}
	l.written.Add(n)
	return nil
}

// Refund takes back a write that was not made.
func (l *Limiter) Refund(w Write) {
	n := int64(w.Bytes)
	l.namespaces.refund(w.Namespace, n)
	l.users.refund(w.User, n)
	l.written.Add(-n)
}

// pressure is how full etcd is.
type pressure struct {
	quota int64
	// used is the share of the quota that is used. throttling is how far limits are reduced,
	// from 0 (not at all) to 1 (to the guaranteed minimum).
	used, throttling float64
}

// pressure returns how full etcd is. The bytes that this server has written since the last
// measurement count as used.
func (l *Limiter) pressure() pressure {
	m := l.measured.Load()
	if m.quota <= 0 {
		return pressure{}
	}
	used := (m.used + float64(max(0, l.written.Load()-m.written))) / float64(m.quota)
	return pressure{quota: m.quota, used: used, throttling: min(1, max(0, (used-throttleFrom)/(throttleTo-throttleFrom)))}
}

// reason returns the share of the quota that is used if limits are reduced because of it, and 0
// if they are not.
func (p pressure) reason() float64 {
	if p.throttling == 0 {
		return 0
	}
	return p.used
}

// Written returns how many bytes were written so far, for SetUsage.
func (l *Limiter) Written() int64 { return l.written.Load() }

// SetUsage records the size of etcd's database file and the bytes in use, measured when Written
// returned written. etcd checks its quota against the file size, and free pages are only partly
// reusable, so half of the free space counts as used. A quota of 0 or less means unknown or none.
func (l *Limiter) SetUsage(dbSize, dbSizeInUse, quota, written int64) {
	p := l.pressure()
	now := l.clock.Now()
	l.namespaces.refill(now, p)
	l.users.refill(now, p)
	used := max(float64(dbSize+dbSizeInUse)/2, float64(quota)-growth*float64(quota-dbSize))
	l.measured.Store(&measurement{used: used, quota: quota, written: written})
}

// The scopes of an ExceededError.
const (
	// ScopeNamespace and ScopeUser mean that the limit of a namespace or user was exceeded.
	ScopeNamespace = "namespace"
	ScopeUser      = "user"
	// ScopeEtcd means that etcd is nearly full.
	ScopeEtcd = "etcd"
)

// ExceededError rejects a write. Nothing was written.
type ExceededError struct {
	// Scope is what was exceeded, and Name the namespace or user.
	Scope, Name string
	RetryAfter  time.Duration
	// Limit is the limit of the namespace or user while etcd has space.
	Limit Limit
	// Used is the share of etcd's quota that is used, if that is the reason.
	Used float64
}

// Error implements error.
func (e *ExceededError) Error() string {
	switch {
	case e.Scope == ScopeEtcd:
		return fmt.Sprintf("etcd has used %d%% of its quota: only deletes are accepted", int(e.Used*100))
	case e.Used > 0:
		return fmt.Sprintf("etcd has used %d%% of its quota: writes for %s %s are throttled", int(e.Used*100), e.Scope, e.Name)
	}
	return fmt.Sprintf("write limit exceeded for %s %s: %d bytes per second with a burst of %d bytes", e.Scope, e.Name, e.Limit.Rate, e.Limit.Burst)
}

// exceeded counts a rejected write.
func exceeded(err *ExceededError) error {
	rejectedWrites.WithLabelValues(err.Scope).Inc()
	return err
}
