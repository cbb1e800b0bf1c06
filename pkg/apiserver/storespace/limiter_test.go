// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package storespace

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const mebibyte = 1 << 20

// newLimiter returns a Limiter with limits of 1 MiB per second and a burst of 8 MiB for namespaces,
// and twice that for users.
func newLimiter() (*Limiter, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return New(Limits{Namespace: Limit{mebibyte, 8 * mebibyte}, User: Limit{2 * mebibyte, 16 * mebibyte}}, c), c
}

// by is a write of 1 MiB.
func by(namespace, user string) Write {
	return Write{Namespace: namespace, User: user, Bytes: mebibyte}
}

// takeAll makes the same write until it is rejected, and returns the number of accepted writes and
// the error. It gives up after a thousand.
func takeAll(t *testing.T, l *Limiter, w Write) (int, *ExceededError) {
	t.Helper()
	for n := range 1000 {
		var exceeded *ExceededError
		if err := l.Take(w); errors.As(err, &exceeded) {
			return n, exceeded
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return 1000, nil
}

// TestNamespaceAndUserLimits checks that both limits apply, and that a rejected write counts for
// neither.
func TestNamespaceAndUserLimits(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	n, why := takeAll(t, l, by("a", "eve"))
	if n != 8 || why == nil || why.Scope != ScopeNamespace || why.Name != "a" || why.RetryAfter != time.Second {
		t.Errorf("%d writes in a namespace were accepted, then: %+v", n, why)
	}
	if n, why = takeAll(t, l, by("b", "eve")); n != 8 || why.Scope != ScopeNamespace {
		t.Errorf("%d writes in another namespace were accepted, then: %+v", n, why)
	}
	if n, why = takeAll(t, l, by("c", "eve")); n != 0 || why == nil || why.Scope != ScopeUser || why.Name != "eve" {
		t.Errorf("%d writes of a user in a third namespace were accepted, then: %+v", n, why)
	}
	if n, _ = takeAll(t, l, by("c", "alice")); n != 8 {
		t.Errorf("%d writes of another user were accepted: rejected writes counted", n)
	}
	clock.Step(3 * time.Second)
	if n, _ = takeAll(t, l, by("a", "eve")); n != 3 {
		t.Errorf("%d writes were accepted after 3 s, want 3", n)
	}
}

// TestLargeWrites checks that a write of any size is accepted while tokens are left, that later
// ones wait for it, and that tokens can be refunded.
func TestLargeWrites(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	large := Write{Namespace: "a", User: "eve", Bytes: 12 * mebibyte}
	if err := l.Take(large); err != nil {
		t.Fatal(err)
	}
	var exceeded *ExceededError
	if err := l.Take(by("a", "eve")); !errors.As(err, &exceeded) || exceeded.RetryAfter != 4*time.Second {
		t.Errorf("a write after a large one: %v, %+v", err, exceeded)
	}
	l.Refund(large)
	if n, _ := takeAll(t, l, by("a", "eve")); n != 8 || l.Written() != 8*mebibyte {
		t.Errorf("%d writes were accepted after a refund, %d bytes in total", n, l.Written())
	}
	clock.Step(time.Hour)
	if n, _ := takeAll(t, l, by("a", "eve")); n != 8 {
		t.Errorf("%d writes were accepted after an hour: more than the burst", n)
	}
}

// TestExemptWrites checks that exempt writes count, and alone do not throttle others while etcd has
// space.
func TestExemptWrites(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter()
	exempt := by("a", "")
	exempt.Exempt = true
	if n, why := takeAll(t, l, exempt); why != nil {
		t.Errorf("after %d writes: %v", n, why)
	}
	if n, _ := takeAll(t, l, by("a", "eve")); n != 2 {
		t.Errorf("%d writes of a user were accepted, want 2 of 8", n)
	}
	l.SetUsage(75, 75, 100, l.Written())
	_ = l.Take(by("b", "")) // the namespace has a bucket
	exempt.Namespace = "b"
	if n, why := takeAll(t, l, exempt); why != nil {
		t.Errorf("in an etcd that is nearly full, after %d writes: %v", n, why)
	}
	l.SetUsage(75, 75, 100, l.Written())
	if n, _ := takeAll(t, l, by("b", "alice")); n != 0 {
		t.Errorf("in an etcd that is nearly full, %d writes of a user were accepted", n)
	}
}

func TestNoLimits(t *testing.T) {
	t.Parallel()
	l := New(Limits{}, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	if n, why := takeAll(t, l, by("a", "eve")); why != nil {
		t.Errorf("after %d writes: %v", n, why)
	}
	l.SetUsage(95, 95, 100, l.Written())
	if _, why := takeAll(t, l, by("a", "eve")); why == nil || why.Scope != ScopeEtcd {
		t.Errorf("in an etcd that is nearly full: %v", why)
	}
}

// TestNearlyFull checks that heavy writers are rejected first near the quota, and then everyone
// except controllers. What this server writes counts at once, without another measurement.
func TestNearlyFull(t *testing.T) {
	t.Parallel()
	const quota = 1000 * mebibyte
	for used, want := range map[int64]struct{ heavy, light bool }{
		100: {true, true}, 590: {true, true}, 700: {false, true}, 800: {false, true}, 895: {false, true}, 905: {false, false},
	} {
		t.Run(fmt.Sprint(used), func(t *testing.T) {
			t.Parallel()
			l, _ := newLimiter()
			for range 6 {
				if err := l.Take(by("heavy", "eve")); err != nil {
					t.Fatal(err)
				}
			}
			l.SetUsage((used-1)*mebibyte, (used-1)*mebibyte, quota, l.Written()-mebibyte)
			light := Write{Namespace: "light", User: "alice", Bytes: 1000}
			if err := l.Take(by("heavy", "eve")); (err == nil) != want.heavy {
				t.Errorf("a write of a heavy writer: %v", err)
			}
			if err := l.Take(light); (err == nil) != want.light {
				t.Errorf("a write of a light writer: %v", err)
			}
			light.Exempt = true
			if err := l.Take(light); err != nil {
				t.Errorf("a controller: %v", err)
			}
		})
	}
	l, _ := newLimiter()
	l.SetUsage(599*mebibyte, 599*mebibyte, quota, 0)
	for i := range 150 {
		_ = l.Take(by(fmt.Sprint(i), ""))
	}
	if p := l.pressure(); p.throttling < 0.7 || p.used < 0.74 {
		t.Errorf("150 MiB later: %+v", p)
	}
}

// TestLightWritersAreNotThrottled checks that light writers are never throttled while etcd is
// nearly full, and that the buckets of heavy writers are refilled only afterwards.
func TestLightWritersAreNotThrottled(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	for range 6 {
		if err := l.Take(by("heavy", "eve")); err != nil {
			t.Fatal(err)
		}
	}
	for range 600 {
		l.SetUsage(85, 85, 100, l.Written()) // as if compaction freed what is written
		if err := l.Take(Write{Namespace: "light", User: "alice", Bytes: lightRate}); err != nil {
			t.Fatalf("a writer of %d bytes per second: %v", lightRate, err)
		}
		if err := l.Take(by("heavy", "eve")); err == nil {
			t.Fatal("a write of a heavy writer was accepted")
		}
		clock.Step(time.Second)
	}
	l.SetUsage(10, 10, 100, l.Written())
	if err := l.Take(by("heavy", "eve")); err != nil {
		t.Errorf("after etcd had space again: %v", err)
	}
}

// TestBucketsAreBounded checks that only buckets that are not full are kept, and not too many.
func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	for i := range maxBuckets + 100 {
		if err := l.Take(Write{Namespace: fmt.Sprint(i), Bytes: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		n := 0
		l.namespaces.byName.Range(func(any, any) bool { n++; return true })
		return n
	}
	if n := count(); n != maxBuckets {
		t.Errorf("there are %d buckets, want %d", n, maxBuckets)
	}
	clock.Step(time.Second)
	l.SetUsage(0, 0, 0, 0)
	if n := count(); n != 0 || l.namespaces.n.Load() != 0 {
		t.Errorf("%d buckets are left, %d are counted", n, l.namespaces.n.Load())
	}
}

func BenchmarkTake(b *testing.B) {
	l := New(DefaultLimits(), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	write := Write{Namespace: "a", User: "alice", Bytes: 0}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Take(write); err != nil {
			b.Fatal(err)
		}
	}
}

// TestUsedSpace checks how free space in the file counts, and when a member is defragmented.
func TestUsedSpace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ file, inUse, want float64 }{
		{1, 0.2, 1}, {0.96, 0.5, 0.9}, {0.9, 0.5, 0.75}, {0.7, 0.5, 0.6}, {0.5, 0.5, 0.5}, {0.9, 0.9, 0.9},
	} {
		l, _ := newLimiter()
		const quota = 1e6
		l.SetUsage(int64(tc.file*quota), int64(tc.inUse*quota), quota, 0)
		if used := l.pressure().used; math.Abs(used-tc.want) > 1e-6 {
			t.Errorf("a file of %v with %v in use counts as %v, want %v", tc.file, tc.inUse, used, tc.want)
		}
	}
	for _, tc := range []struct {
		file, inUse int64
		want        bool
	}{{700, 100, false}, {760, 390, false}, {760, 370, true}, {880, 500, false}, {910, 800, false}, {910, 780, true}} {
		if got := worthDefragmenting(tc.file, tc.inUse, 1000); got != tc.want {
			t.Errorf("a file of %d with %d in use, of 1000, is defragmented: %t", tc.file, tc.inUse, got)
		}
	}
}
