// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Limits are reduced linearly while between throttleFrom and throttleTo of etcd's quota are
	// used. From throttleFrom on, history is compacted early.
	throttleFrom, throttleTo = 0.60, 0.80
	// slowFrom is the share of etcd's quota from which the guaranteed rate is reduced as well,
	// linearly to nothing at rejectFrom. What heavy writers may write would otherwise use up the
	// quota while a slow machine takes minutes for a compaction, and light writers would be
	// rejected with them.
	slowFrom = 0.85
	// rejectFrom is the share of etcd's quota from which all writes of users except first deletes
	// are rejected. The rest is left for controllers and compaction.
	rejectFrom = 0.90
	// nearQuotaWeight makes a file that is close to the quota count as nearly full even if most of
	// it is free: each percent of the quota that the file can still grow counts as nearQuotaWeight
	// percent unused. A file at 96% of the quota counts as 1-2.5*0.04 = 90% used.
	nearQuotaWeight = 2.5
)

// Limits are the limits for each namespace and for each user.
type Limits struct {
	Namespace, User Limit
}

// DefaultLimits returns limits that let clients create objects of typical size at full speed for
// some minutes. One namespace alone cannot fill the default etcd quota within the minute for which
// history is kept.
func DefaultLimits() Limits {
	limit := Limit{Rate: 8 << 20, Burst: 256 << 20}
	return Limits{Namespace: limit, User: limit}
}

// Limiter limits the bytes that are written to etcd for each namespace and user. What is written is
// also kept in the memory of API servers, where an object can take many times its size in etcd. So
// limits are reduced if either is nearly full. It is safe for concurrent use. A write takes the locks of the buckets of its namespace and its user, one after
// the other.
type Limiter struct {
	clock             clock.PassiveClock
	namespaces, users buckets
	// creates are those of exempt creates, by namespace. They have buckets of their own, so that
	// controllers throttle no users.
	creates buckets
	// written is how many bytes this server has written.
	written atomic.Int64
	// measured is the result of the last SetUsage.
	measured atomic.Pointer[usedBytes]
	// memoryUsed is the argument of the last SetMemoryUsed, as bits.
	memoryUsed atomic.Uint64
}

// usedBytes is what SetUsage has computed from a Usage.
type usedBytes struct {
	used           float64
	quota, written int64
}

// NewLimiter returns a Limiter. Before the first SetUsage it assumes that etcd is empty.
func NewLimiter(limits Limits, c clock.PassiveClock) *Limiter {
	registerMetrics()
	l := &Limiter{clock: c}
	l.namespaces.limit, l.creates.limit, l.users.limit = limits.Namespace, limits.Namespace, limits.User
	l.measured.Store(&usedBytes{})
	return l
}

// Write is a write that is about to be made.
type Write struct {
	// Namespace is the namespace of the objects, and User the user that the write counts for.
	// An empty Namespace or User is not counted.
	Namespace, User string
	Bytes           int
	// Exempt writes count but are never rejected, except creates while limits are reduced:
	// controllers create what users ask for.
	Exempt, Create bool
}

// Reservation is what Reserve has counted for a write. Cancel returns it if the write was not made.
type Reservation struct {
	namespace, user bucketReservation
	bytes           int64
}

// Reserve counts a write that is about to be made, or returns an *ExceededError and counts nothing.
func (l *Limiter) Reserve(w Write) (Reservation, error) {
	p := l.pressure()
	if (!w.Exempt || w.Create) && p.used >= rejectFrom {
		return Reservation{}, exceeded(&ExceededError{Scope: p.scope(), RetryAfter: 10 * shortestWait, Used: p.used, InMemory: p.inMemory})
	}
	now, r, namespaces := l.clock.Now(), Reservation{bytes: int64(w.Bytes)}, &l.namespaces
	if w.Exempt && w.Create {
		namespaces, w.Exempt = &l.creates, p.throttling == 0
	}
	var wait time.Duration
	if r.namespace, wait = namespaces.take(w.Namespace, now, p, r.bytes, w.Exempt); wait > 0 {
		return Reservation{}, exceeded(&ExceededError{ScopeNamespace, w.Namespace, wait, namespaces.limit, p.throttledAt(), p.inMemory})
	}
	if r.user, wait = l.users.take(w.User, now, p, r.bytes, w.Exempt); wait > 0 {
		r.namespace.cancel()
		return Reservation{}, exceeded(&ExceededError{ScopeUser, w.User, wait, l.users.limit, p.throttledAt(), p.inMemory})
	}
	l.written.Add(r.bytes)
	return r, nil
}

// Cancel returns the tokens of a write that was not made.
func (l *Limiter) Cancel(r Reservation) {
	r.namespace.cancel()
	r.user.cancel()
	l.written.Add(-r.bytes)
}

// pressure is how full etcd or the memory is.
type pressure struct {
	// quota is the quota of etcd, or very large if it is not known.
	quota int64
	// used is the share that is used, of the quota or of the memory limit. throttling is how far
	// limits are reduced, from 0 (not at all) to 1 (to the guaranteed minimum).
	used, throttling float64
	// inMemory is whether used is the share of the memory limit.
	inMemory bool
}

// pressure returns how full etcd or the memory is, whichever is fuller.
func (l *Limiter) pressure() pressure {
	p := pressure{quota: math.MaxInt64}
	if m := l.measured.Load(); m.quota > 0 {
		p.quota, p.used = m.quota, l.etcdUsed()
	}
	if memoryUsed := math.Float64frombits(l.memoryUsed.Load()); memoryUsed > p.used {
		p.used, p.inMemory = memoryUsed, true
	}
	p.throttling = min(1, max(0, (p.used-throttleFrom)/(throttleTo-throttleFrom)))
	return p
}

// etcdUsed returns the used share of etcd's quota; 0 if that is not known. The bytes that this server
// has written since the last measurement count as used.
func (l *Limiter) etcdUsed() float64 {
	m := l.measured.Load()
	if m.quota <= 0 {
		return 0
	}
	return (m.used + float64(max(0, l.written.Load()-m.written))) / float64(m.quota)
}

// scope returns the scope of the error if all writes are rejected.
func (p pressure) scope() string {
	if p.inMemory {
		return ScopeMemory
	}
	return ScopeEtcd
}

// throttledAt returns the used share if it throttles writes; otherwise 0.
func (p pressure) throttledAt() float64 {
	if p.throttling == 0 {
		return 0
	}
	return p.used
}

// Written returns how many bytes were written so far, for SetUsage.
func (l *Limiter) Written() int64 { return l.written.Load() }

// Usage is the size of etcd at one time.
type Usage struct {
	// File is the size of the database file in bytes, and InUse what is in use of it.
	File, InUse int64
	// Quota is the maximum size of the file; 0 or less means unknown or none.
	Quota int64
	// WrittenBefore is the result of Limiter.Written before the measurement.
	WrittenBefore int64
	// AutoDefragmented reports whether API servers defragment etcd when the file is close to the
	// quota.
	AutoDefragmented bool
}

// used returns how many bytes count as used. etcd checks its quota against the file size, and free
// pages are only partly reusable, so half of the free space counts as used. It counts more when the
// file is close to the quota, but only if a defragmentation will end that.
func (u Usage) used() float64 {
	used := float64(u.File+u.InUse) / 2
	if u.AutoDefragmented {
		used = max(used, float64(u.Quota)-nearQuotaWeight*float64(u.Quota-u.File))
	}
	return used
}

// SetUsage records a measurement.
func (l *Limiter) SetUsage(u Usage) {
	p := l.pressure()
	now := l.clock.Now()
	l.namespaces.refill(now, p)
	l.creates.refill(now, p)
	l.users.refill(now, p)
	l.measured.Store(&usedBytes{used: u.used(), quota: u.Quota, written: u.WrittenBefore})
}

// SetMemoryUsed records the share of the memory limit that is used.
func (l *Limiter) SetMemoryUsed(share float64) {
	l.memoryUsed.Store(math.Float64bits(share))
	memoryUsedRatio.Set(share)
}

// The scopes of an ExceededError.
const (
	// ScopeNamespace and ScopeUser mean that the limit of a namespace or user was exceeded.
	ScopeNamespace = "namespace"
	ScopeUser      = "user"
	// ScopeEtcd means that etcd is nearly full, and ScopeMemory that the memory is.
	ScopeEtcd   = "etcd"
	ScopeMemory = "memory"
)

// ExceededError means that a write was rejected before it was made, because it exceeds a limit, or
// etcd or the memory is nearly full.
type ExceededError struct {
	// Scope is what was exceeded, and Name the namespace or user.
	Scope, Name string
	RetryAfter  time.Duration
	// Limit is the limit of the namespace or user while etcd has space.
	Limit Limit
	// Used is the share of etcd's quota that is used, or of the memory limit if InMemory is true, if
	// it throttles writes; otherwise 0.
	Used     float64
	InMemory bool
}

// Error implements error.
func (e *ExceededError) Error() string {
	full := "etcd has used %d%% of its quota"
	if e.InMemory {
		full = "the API server has used %d%% of its memory"
	}
	full = fmt.Sprintf(full, int(e.Used*100))
	switch {
	case e.Scope == ScopeEtcd, e.Scope == ScopeMemory:
		return full + ": only deletes are accepted"
	case e.Used > 0:
		return fmt.Sprintf("%s: writes for %s %s are throttled", full, e.Scope, e.Name)
	}
	return fmt.Sprintf("write limit exceeded for %s %s: %d bytes per second with a burst of %d bytes", e.Scope, e.Name, e.Limit.Rate, e.Limit.Burst)
}

// exceeded counts a rejected write.
func exceeded(err *ExceededError) error {
	rejectedWrites.WithLabelValues(err.Scope).Inc()
	return err
}
