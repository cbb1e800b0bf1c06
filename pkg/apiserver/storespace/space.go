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
	// squeezedFrom, as a part of etcd's quota, is from where on those who have written most
	// are refused, and history is compacted early. At squeezedTo all are refused who have
	// lately written more than a little.
	squeezedFrom, squeezedTo = 0.60, 0.80
	// fullFrom is from where on all writes of users are refused that are no deletes. What is
	// above is left for controllers and compaction.
	fullFrom = 0.90
	// growth is how much sooner than what is in use a file is full that grows: one of 96% of
	// the quota counts as 90%.
	growth = 2.5
)

// Limits are the budgets of bytes.
type Limits struct {
	// Namespace and User hold for each namespace and each user.
	Namespace, User Limit
}

// DefaultLimits are beyond what clients need that create objects of the usual size as fast as
// they can for some minutes, and below what fills etcd within the minute for which history is
// kept.
func DefaultLimits() Limits {
	limit := Limit{Rate: 8 << 20, Burst: 256 << 20}
	return Limits{Namespace: limit, User: limit}
}

// Space counts what is written. It is safe for concurrent use. A write takes the locks of its
// namespace's and its user's account, one after the other.
type Space struct {
	clock             clock.PassiveClock
	namespaces, users accounts
	// written is how many bytes this server has written, and measured how full etcd was.
	written  atomic.Int64
	measured atomic.Pointer[measurement]
}

// measurement is how many bytes of etcd's quota were used. written is the Space's own of before it was measured.
type measurement struct {
	used           float64
	quota, written int64
}

// New returns a Space. Before Measured was called, it takes etcd for empty.
func New(limits Limits, c clock.PassiveClock) *Space {
	registerMetrics()
	s := &Space{clock: c}
	s.namespaces.limit, s.users.limit = limits.Namespace, limits.User
	s.measured.Store(&measurement{})
	return s
}

// Write is what is about to be written.
type Write struct {
	// Namespace is that of the objects, and User on whose behalf they are written. Empty is
	// not counted.
	Namespace, User string
	Bytes           int
	// Always means that the write is counted and never refused.
	Always bool
}

// Spend counts a write that is about to be made, or returns an *ExceededError.
func (s *Space) Spend(w Write) error {
	p := s.pressure()
	if !w.Always && p.used >= fullFrom {
		return exceeded(&ExceededError{Budget: BudgetStore, RetryAfter: 10 * shortestWait, Used: p.used})
	}
	now, n := s.clock.Now(), int64(w.Bytes)
	if wait := s.namespaces.spend(w.Namespace, now, p, n, w.Always); wait > 0 {
		return exceeded(&ExceededError{BudgetNamespace, w.Namespace, wait, s.namespaces.limit, p.reason()})
	}
	if wait := s.users.spend(w.User, now, p, n, w.Always); wait > 0 {
		s.namespaces.giveBack(w.Namespace, n)
		return exceeded(&ExceededError{BudgetUser, w.User, wait, s.users.limit, p.reason()})
	}
	s.written.Add(n)
	return nil
}

// GiveBack takes back a write that was not made after all.
func (s *Space) GiveBack(w Write) {
	n := int64(w.Bytes)
	s.namespaces.giveBack(w.Namespace, n)
	s.users.giveBack(w.User, n)
	s.written.Add(-n)
}

// pressure is how full etcd is.
type pressure struct {
	quota int64
	// used is how much of the quota is used, and squeeze how much the writers are squeezed for
	// that, from 0 to 1.
	used, squeeze float64
}

// pressure returns how full etcd is. What this server has written since etcd was measured is
// taken to be in use.
func (s *Space) pressure() pressure {
	m := s.measured.Load()
	if m.quota <= 0 {
		return pressure{}
	}
	used := (m.used + float64(max(0, s.written.Load()-m.written))) / float64(m.quota)
	return pressure{quota: m.quota, used: used, squeeze: min(1, max(0, (used-squeezedFrom)/(squeezedTo-squeezedFrom)))}
}

// reason is how full etcd is if that is why a write is refused, and 0 if not.
func (p pressure) reason() float64 {
	if p.squeeze == 0 {
		return 0
	}
	return p.used
}

// Written returns how many bytes were written so far, for Measured.
func (s *Space) Written() int64 { return s.written.Load() }

// Measured takes in the size of etcd's file and how many bytes of it are in use, at a time when
// written bytes were written. A quota of 0 or less is none.
//
// The quota counts the file. Of what is free in it, not all can be used again, because it is in
// pieces: half of it is taken to be lost, and in a file that is nearly as large as the quota more.
func (s *Space) Measured(file, inUse, quota, written int64) {
	p := s.pressure()
	now := s.clock.Now()
	s.namespaces.settle(now, p)
	s.users.settle(now, p)
	used := max(float64(file+inUse)/2, float64(quota)-growth*float64(quota-file))
	s.measured.Store(&measurement{used: used, quota: quota, written: written})
}

// What was exceeded.
const (
	BudgetNamespace = "namespace"
	BudgetUser      = "user"
	BudgetStore     = "store"
)

// ExceededError refuses a write. Nothing was written.
type ExceededError struct {
	// Budget says what was exceeded, and Name of which namespace or user.
	Budget, Name string
	RetryAfter   time.Duration
	// Limit is what holds for the namespace or user.
	Limit Limit
	// Used is how much of etcd's quota is in use, if that is the reason.
	Used float64
}

// Error implements error.
func (e *ExceededError) Error() string {
	switch {
	case e.Budget == BudgetStore:
		return fmt.Sprintf("%d%% of the space in etcd is in use: only deletes are taken", int(e.Used*100))
	case e.Used > 0:
		return fmt.Sprintf("%d%% of the space in etcd is in use, and %s %s is one of those that have written most of late",
			int(e.Used*100), e.Budget, e.Name)
	}
	return fmt.Sprintf("too many bytes were written for %s %s: the limit is %d a second, after %d at once", e.Budget, e.Name, e.Limit.Rate, e.Limit.Burst)
}

// exceeded counts a refusal.
func exceeded(err *ExceededError) error {
	refusedWrites.WithLabelValues(err.Budget).Inc()
	return err
}
