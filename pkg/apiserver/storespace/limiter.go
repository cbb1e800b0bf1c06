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

// Taken is what Take has counted, for Refund.
type Taken struct {
	namespace, user charge
	bytes           int64
}

// Take counts a write that is about to be made, or returns an *ExceededError.
func (l *Limiter) Take(w Write) (Taken, error) {
	p := l.pressure()
	if !w.Exempt && p.used >= fullFrom {
		return Taken{}, exceeded(&ExceededError{Scope: ScopeEtcd, RetryAfter: 10 * shortestWait, Used: p.used})
	}
	now, taken := l.clock.Now(), Taken{bytes: int64(w.Bytes)}
	var wait time.Duration
	if taken.namespace, wait = l.namespaces.take(w.Namespace, now, p, taken.bytes, w.Exempt); wait > 0 {
		return Taken{}, exceeded(&ExceededError{ScopeNamespace, w.Namespace, wait, l.namespaces.limit, p.reason()})
	}
	if taken.user, wait = l.users.take(w.User, now, p, taken.bytes, w.Exempt); wait > 0 {
		taken.namespace.refund()
		return Taken{}, exceeded(&ExceededError{ScopeUser, w.User, wait, l.users.limit, p.reason()})
	}
	l.written.Add(taken.bytes)
	return taken, nil
}

// Refund takes back what Take counted for a write that was not made.
func (l *Limiter) Refund(taken Taken) {
	taken.namespace.refund()
	taken.user.refund()
	l.written.Add(-taken.bytes)
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

// Usage is a measurement of etcd.
type Usage struct {
	// File is the size of the database file in bytes, and InUse what is in use of it.
	File, InUse int64
	// Quota is the maximum size of the file; 0 or less means unknown or none.
	Quota int64
	// Written is the result of Limiter.Written before the measurement.
	Written int64
	// Defragmented means that API servers defragment etcd when the file is close to the quota.
	Defragmented bool
}

// used returns how many bytes count as used. etcd checks its quota against the file size, and free
// pages are only partly reusable, so half of the free space counts as used. It counts more when the
// file is close to the quota, but only if a defragmentation will end that.
func (u Usage) used() float64 {
	used := float64(u.File+u.InUse) / 2
	if u.Defragmented {
		used = max(used, float64(u.Quota)-growth*float64(u.Quota-u.File))
	}
	return used
}

// SetUsage records a measurement.
func (l *Limiter) SetUsage(u Usage) {
	p := l.pressure()
	now := l.clock.Now()
	l.namespaces.refill(now, p)
	l.users.refill(now, p)
	l.measured.Store(&measurement{used: u.used(), quota: u.Quota, written: u.Written})
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
