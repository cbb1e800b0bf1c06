// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limit is how many bytes may be written for a namespace or a user.
type Limit struct {
	// Rate is bytes a second; 0 is no limit. Burst is how many more may be written at once.
	Rate, Burst int64
}

const (
	// quietBytes may be written, and quietRate bytes a second go on being forgiven, however
	// full etcd is, up to the point at which all writes of users are refused: so that those
	// who write little go on while those who write much are refused.
	quietBytes = 1 << 20
	quietRate  = 64 << 10

	// Near etcd's quota, burstOfQuota and rateOfQuota are how many bursts, and seconds of a
	// rate, it has room for at least.
	burstOfQuota, rateOfQuota = 8, 256

	// shortestWait and longestWait bound what a client is told to wait.
	shortestWait = time.Second
	longestWait  = 30 * time.Second

	// maxAccounts is how many namespaces, and how many users, have an account of their own at
	// a time. An account is needed for as long as it takes to forgive what was written. More
	// share one account.
	maxAccounts = 1 << 14
)

// near returns the limit that holds near a quota of etcd, as squeeze goes from 0 to 1. It is never
// more than a part of the quota.
func (l Limit) near(quota int64, squeeze float64) Limit {
	if squeeze == 0 {
		return l
	}
	left := func(bytes, most int64) int64 { return int64(float64(min(bytes, most)) * (1 - squeeze)) }
	return Limit{Rate: left(l.Rate, quota/rateOfQuota), Burst: left(l.Burst, quota/burstOfQuota)}
}

// rate is how many bytes are forgiven in a second to one who has written a number of them, where
// now is the limit that holds now. It does not fall for those who write little.
func (l Limit) rate(spent float64, now Limit) float64 {
	rate := float64(now.Rate)
	if spent <= l.quiet() {
		rate = max(rate, min(float64(l.Rate), quietRate))
	}
	return rate
}

// most is below which number of bytes that are not forgiven yet the next write is taken.
func (l Limit) most(now Limit) float64 { return max(l.quiet(), float64(now.Burst)) }

func (l Limit) quiet() float64 { return min(float64(l.Burst), quietBytes) }

// account is what was written for one namespace or user, and is not forgiven yet.
type account struct {
	mu    sync.Mutex
	spent float64
	at    time.Time
	// closed means that the account is not in use any more.
	closed bool
}

// settle forgives what time has brought. a.mu is held.
func (a *account) settle(now time.Time, l, near Limit) {
	if elapsed := now.Sub(a.at); elapsed > 0 {
		a.spent = max(0, a.spent-l.rate(a.spent, near)*elapsed.Seconds())
		a.at = now
	}
}

// spend counts n bytes and returns 0, or counts nothing and returns after what time to try
// again. It takes any number while the account is not overdrawn, so that no write is too large.
// With always it refuses nothing. Such writes use up three quarters of the burst at most: they
// alone never keep others waiting, unless etcd is nearly full. It reports whether the account is still in use; nothing is counted in one that is not.
func (a *account) spend(now time.Time, l, near Limit, n int64, always bool) (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, false
	}
	a.settle(now, l, near)
	most := l.most(near)
	switch {
	case always:
		a.spent = max(a.spent, min(a.spent+float64(n), 0.75*float64(l.Burst)))
		return 0, true
	case a.spent < most:
		a.spent += float64(n)
		return 0, true
	}
	seconds := longestWait.Seconds()
	if rate := l.rate(a.spent, near); rate > 0 {
		seconds = min(seconds, (a.spent-most)/rate)
	}
	return max(shortestWait, time.Duration(seconds*float64(time.Second))), true
}

// giveBack takes n bytes back that were not written.
func (a *account) giveBack(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent = max(0, a.spent-float64(n))
}

// accounts are those of all namespaces, or of all users. Each has a lock of its own.
type accounts struct {
	limit  Limit
	byName sync.Map // of *account by name
	n      atomic.Int64
	// rest is shared by those for whom there is no more room.
	rest account
}

// of returns the account of a name.
func (a *accounts) of(name string, now time.Time) *account {
	if found, ok := a.byName.Load(name); ok {
		return found.(*account)
	}
	if a.n.Load() >= maxAccounts {
		return &a.rest
	}
	found, had := a.byName.LoadOrStore(name, &account{at: now})
	if !had {
		a.n.Add(1)
	}
	return found.(*account)
}

// spend is account.spend for a name. No name, and no limit, is no account.
func (a *accounts) spend(name string, now time.Time, p pressure, n int64, always bool) time.Duration {
	if name == "" || a.limit.Rate == 0 {
		return 0
	}
	near := a.limit.near(p.quota, p.squeeze)
	for {
		if wait, ok := a.of(name, now).spend(now, a.limit, near, n, always); ok {
			return wait
		}
	}
}

func (a *accounts) giveBack(name string, n int64) {
	if found, ok := a.byName.Load(name); ok {
		found.(*account).giveBack(n)
	}
}

// settle brings all accounts up to a time, and drops those of which all is forgiven.
func (a *accounts) settle(now time.Time, p pressure) {
	near := a.limit.near(p.quota, p.squeeze)
	a.byName.Range(func(name, value any) bool {
		one := value.(*account)
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.settle(now, a.limit, near); one.spent == 0 {
			one.closed = true
			a.byName.Delete(name)
			a.n.Add(-1)
		}
		return true
	})
}
