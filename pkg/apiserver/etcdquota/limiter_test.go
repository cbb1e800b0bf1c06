// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"
)

const mebibyte = 1 << 20

// newLimiter returns a Limiter with limits of 1 MiB per second and a burst of 8 MiB for namespaces,
// and twice that for users.
func newLimiter() (*Limiter, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return NewLimiter(Limits{Namespace: Limit{mebibyte, 8 * mebibyte}, User: Limit{2 * mebibyte, 16 * mebibyte}}, c), c
}

// by is a write of 1 MiB.
func by(namespace, user string) Write {
	return Write{Namespace: namespace, User: user, Bytes: mebibyte}
}

// setUsed records that a percentage of a large quota is used.
func setUsed(l *Limiter, percent int64) {
	l.SetUsage(Usage{File: percent << 40, InUse: percent << 40, Quota: 100 << 40, WrittenBefore: l.Written()})
}

// reserveAll makes the same write until it is rejected, and returns the number of accepted writes and
// the error. It gives up after a thousand.
func reserveAll(t *testing.T, l *Limiter, w Write) (int, *ExceededError) {
	t.Helper()
	for n := range 1000 {
		var exceeded *ExceededError
		if _, err := l.Reserve(w); errors.As(err, &exceeded) {
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
	n, why := reserveAll(t, l, by("a", "eve"))
	if n != 8 || why == nil || why.Scope != ScopeNamespace || why.Name != "a" || why.RetryAfter != time.Second {
		t.Errorf("%d writes in a namespace were accepted, then: %+v", n, why)
	}
	if n, why = reserveAll(t, l, by("b", "eve")); n != 8 || why.Scope != ScopeNamespace {
		t.Errorf("%d writes in another namespace were accepted, then: %+v", n, why)
	}
	if n, why = reserveAll(t, l, by("c", "eve")); n != 0 || why == nil || why.Scope != ScopeUser || why.Name != "eve" {
		t.Errorf("%d writes of a user in a third namespace were accepted, then: %+v", n, why)
	}
	if n, _ = reserveAll(t, l, by("c", "alice")); n != 8 {
		t.Errorf("%d writes of another user were accepted: rejected writes counted", n)
	}
	clock.Step(3 * time.Second)
	if n, _ = reserveAll(t, l, by("a", "eve")); n != 3 {
		t.Errorf("%d writes were accepted after 3 s, want 3", n)
	}
}

// TestLargeWrites checks that a write of any size is accepted while tokens are left, that later
// ones wait for it, and that tokens can be returned.
func TestLargeWrites(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	large := Write{Namespace: "a", User: "eve", Bytes: 12 * mebibyte}
	taken, err := l.Reserve(large)
	if err != nil {
		t.Fatal(err)
	}
	var exceeded *ExceededError
	if _, err = l.Reserve(by("a", "eve")); !errors.As(err, &exceeded) || exceeded.RetryAfter != 4*time.Second {
		t.Errorf("a write after a large one: %v, %+v", err, exceeded)
	}
	l.Cancel(taken)
	if n, _ := reserveAll(t, l, by("a", "eve")); n != 8 || l.Written() != 8*mebibyte {
		t.Errorf("%d writes were accepted after a cancel, %d bytes in total", n, l.Written())
	}
	clock.Step(time.Hour)
	if n, _ := reserveAll(t, l, by("a", "eve")); n != 8 {
		t.Errorf("%d writes were accepted after an hour: more than the burst", n)
	}
}

// TestExemptWrites checks that exempt writes count, but leave a quarter of the burst for others.
func TestExemptWrites(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter()
	if n, why := reserveAll(t, l, exempt(by("a", ""))); why != nil {
		t.Errorf("after %d writes: %v", n, why)
	}
	if n, _ := reserveAll(t, l, by("a", "eve")); n != 2 {
		t.Errorf("%d writes of a user were accepted, want 2 of 8", n)
	}
}

// exempt returns a write that is exempt.
func exempt(w Write) Write {
	w.Exempt = true
	return w
}

// TestControllersDoNotThrottleUsers checks that a light writer is never throttled because of
// controllers that write much in the same namespace while etcd is nearly full, or did so before.
func TestControllersDoNotThrottleUsers(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	if n, why := reserveAll(t, l, exempt(by("innocent", "alice"))); why != nil {
		t.Fatalf("after %d writes: %v", n, why)
	}
	for i := range 600 {
		setUsed(l, 85) // as if compaction freed what is written
		if _, err := l.Reserve(Write{Namespace: "innocent", User: "alice", Bytes: guaranteedRate}); err != nil {
			t.Fatalf("a writer of %d bytes per second after %d s: %v", guaranteedRate, i, err)
		}
		for range 10 {
			if _, err := l.Reserve(exempt(by("innocent", "alice"))); err != nil {
				t.Fatal(err)
			}
		}
		clock.Step(time.Second)
	}
	if _, why := reserveAll(t, l, by("innocent", "alice")); why == nil {
		t.Error("writes of the user are not limited")
	}
}

// TestCreatesOfControllers checks that controllers create what they like while etcd has space, and
// not more for a namespace than its limit near the quota, however much it was before; and that
// this throttles neither users of the namespace nor other namespaces.
func TestCreatesOfControllers(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	create := exempt(by("a", ""))
	create.Create = true
	if n, why := reserveAll(t, l, create); why != nil {
		t.Fatalf("rejected after %d creates: %v", n, why)
	}
	setUsed(l, 85)
	clock.Step(time.Minute)
	created := 0
	for range 600 {
		setUsed(l, 85) // as if users deleted what is created
		if _, err := l.Reserve(create); err == nil {
			created++
		}
		for _, namespace := range []string{"a", "b"} {
			other := Write{Namespace: namespace, User: "alice", Bytes: guaranteedRate / 2}
			if namespace == "b" {
				other = Write{Namespace: namespace, Bytes: guaranteedRate, Exempt: true, Create: true}
			}
			if _, err := l.Reserve(other); err != nil {
				t.Fatalf("a light writer in namespace %s: %v", namespace, err)
			}
		}
		clock.Step(time.Second)
	}
	if want := 600 * guaranteedRate / mebibyte; created < want || created > want+2 {
		t.Errorf("%d creates of 1 MiB in 600 s, want %d", created, want)
	}
	setUsed(l, 90)
	if _, err := l.Reserve(create); err == nil {
		t.Error("a create is accepted at 90%")
	}
	create.Create = false
	if _, err := l.Reserve(create); err != nil {
		t.Errorf("another write of a controller at 90%%: %v", err)
	}
}

// TestCancel checks that Cancel returns what was counted, not what was written, and nothing if
// the bucket has been full since.
func TestCancel(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	if _, err := l.Reserve(by("a", "")); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if _, err := l.Reserve(exempt(by("a", ""))); err != nil {
			t.Fatal(err)
		}
	}
	more, err := l.Reserve(exempt(by("a", "")))
	if err != nil {
		t.Fatal(err)
	}
	l.Cancel(more)
	if n, _ := reserveAll(t, l, by("a", "")); n != 1 || l.Written() != 8*mebibyte {
		t.Errorf("%d writes were accepted after a cancel of a write that was not counted, %d bytes in total; want 1 of 8", n, l.Written())
	}
	early, err := l.Reserve(by("b", ""))
	if err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Hour)
	l.SetUsage(Usage{}) // removes the bucket
	if _, err := l.Reserve(by("b", "")); err != nil {
		t.Fatal(err)
	}
	l.Cancel(early)
	if n, _ := reserveAll(t, l, by("b", "")); n != 7 {
		t.Errorf("%d writes were accepted after a cancel of a write in a bucket that was full since, want 7", n)
	}
}

func TestNoLimits(t *testing.T) {
	t.Parallel()
	l := NewLimiter(Limits{}, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	if n, why := reserveAll(t, l, by("a", "eve")); why != nil {
		t.Errorf("after %d writes: %v", n, why)
	}
	setUsed(l, 95)
	if _, why := reserveAll(t, l, by("a", "eve")); why == nil || why.Scope != ScopeEtcd {
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
				if _, err := l.Reserve(by("heavy", "eve")); err != nil {
					t.Fatal(err)
				}
			}
			l.SetUsage(Usage{File: (used - 1) * mebibyte, InUse: (used - 1) * mebibyte, Quota: quota, WrittenBefore: l.Written() - mebibyte})
			light := Write{Namespace: "light", User: "alice", Bytes: 1000}
			if _, err := l.Reserve(by("heavy", "eve")); (err == nil) != want.heavy {
				t.Errorf("a write of a heavy writer: %v", err)
			}
			if _, err := l.Reserve(light); (err == nil) != want.light {
				t.Errorf("a write of a light writer: %v", err)
			}
			light.Exempt = true
			if _, err := l.Reserve(light); err != nil {
				t.Errorf("a controller: %v", err)
			}
		})
	}
	l, _ := newLimiter()
	l.SetUsage(Usage{File: 599 * mebibyte, InUse: 599 * mebibyte, Quota: quota})
	for i := range 150 {
		_, _ = l.Reserve(by(fmt.Sprint(i), ""))
	}
	if p := l.pressure(); p.throttling < 0.7 || p.used < 0.74 {
		t.Errorf("150 MiB later: %+v", p)
	}
}

// TestLightWritersAreNotThrottled checks that light writers are never throttled while etcd is
// nearly full, and that heavy writers get exactly the guaranteed rate.
func TestLightWritersAreNotThrottled(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	for range 6 {
		if _, err := l.Reserve(by("heavy", "eve")); err != nil {
			t.Fatal(err)
		}
	}
	heavy := 0
	for range 600 {
		setUsed(l, 85) // as if compaction freed what is written
		if _, err := l.Reserve(Write{Namespace: "light", User: "alice", Bytes: guaranteedRate}); err != nil {
			t.Fatalf("a writer of %d bytes per second: %v", guaranteedRate, err)
		}
		if _, err := l.Reserve(by("heavy", "eve")); err == nil {
			heavy++
		}
		clock.Step(time.Second)
	}
	// 6 MiB before it, of which 1 MiB are guaranteed.
	if want := (600*guaranteedRate - 5*mebibyte) / mebibyte; heavy < want || heavy > want+1 {
		t.Errorf("%d writes of a heavy writer were accepted, want %d", heavy, want)
	}
	setUsed(l, 10)
	if _, err := l.Reserve(by("heavy", "eve")); err != nil {
		t.Errorf("after etcd had space again: %v", err)
	}
}

// TestHeavyWritersStopBeforeTheEnd checks that the guaranteed rate falls before everyone is rejected,
// and that light writers keep their burst.
func TestHeavyWritersStopBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for used, want := range map[int64]int{85: 60 * guaranteedRate, 87: 36 * guaranteedRate, 89: 12 * guaranteedRate} {
		t.Run(fmt.Sprint(used), func(t *testing.T) {
			t.Parallel()
			l, clock := newLimiter()
			setUsed(l, used)
			writes := 0 // of 1 KiB, after the burst
			for i := range 61 {
				n := 0
				for more := 1000; more == 1000; n += more { // reserveAll gives up after a thousand
					more, _ = reserveAll(t, l, Write{Namespace: "heavy", User: "eve", Bytes: 1 << 10})
				}
				if i > 0 {
					writes += n
				}
				clock.Step(time.Second)
				setUsed(l, used) // as if compaction freed what is written
			}
			if got := writes << 10; got < want*9/10 || got > want*11/10 {
				t.Errorf("a heavy writer wrote %d bytes in a minute, want %d", got, want)
			}
			if n, why := reserveAll(t, l, Write{Namespace: "light", User: "alice", Bytes: guaranteedBurst / 100}); n < 100 {
				t.Errorf("a light writer wrote only %d of 100 times: %v", n, why)
			}
		})
	}
}

// TestBucketsAreBounded checks that only buckets that are not full are kept, and not too many.
func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	l, clock := newLimiter()
	for i := range maxBuckets + 100 {
		if _, err := l.Reserve(Write{Namespace: fmt.Sprint(i), Bytes: 1000}); err != nil {
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
	l.SetUsage(Usage{})
	if n := count(); n != 0 || l.namespaces.n.Load() != 0 {
		t.Errorf("%d buckets are left, %d are counted", n, l.namespaces.n.Load())
	}
}

// TestUsedSpace checks how much of a partly free file counts as used, and which files are
// defragmented.
func TestUsedSpace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ file, inUse, want, wantWithout float64 }{
		{1, 0.2, 1, 0.6}, {0.96, 0.5, 0.9, 0.73}, {0.9, 0.5, 0.75, 0.7}, {0.7, 0.5, 0.6, 0.6}, {0.5, 0.5, 0.5, 0.5}, {0.9, 0.9, 0.9, 0.9},
	} {
		const quota = 1e6
		for defragmented, want := range map[bool]float64{true: tc.want, false: tc.wantWithout} {
			l, _ := newLimiter()
			l.SetUsage(Usage{File: int64(tc.file * quota), InUse: int64(tc.inUse * quota), Quota: quota, AutoDefragmented: defragmented})
			if used := l.pressure().used; math.Abs(used-want) > 1e-6 {
				t.Errorf("a file of %v with %v in use counts as %v, want %v (defragmented: %t)", tc.file, tc.inUse, used, want, defragmented)
			}
			if used := l.pressure().used; defragmented && used >= rejectFrom && tc.inUse < 0.8 && !worthDefragmenting(int64(tc.file*quota), int64(tc.inUse*quota), quota) {
				t.Errorf("a file of %v with %v in use rejects users and is not defragmented", tc.file, tc.inUse)
			}
		}
	}
	for _, tc := range []struct {
		file, inUse int64
		want        bool
	}{{700, 100, false}, {760, 390, false}, {760, 370, true}, {880, 500, false}, {910, 800, false}, {910, 780, true}, {960, 500, true}} {
		if got := worthDefragmenting(tc.file, tc.inUse, 1000); got != tc.want {
			t.Errorf("a file of %d with %d in use, of 1000, is defragmented: %t", tc.file, tc.inUse, got)
		}
	}
	for _, tc := range []struct {
		file, inUse int64
		want        bool
	}{{256, 10, false}, {266, 10, true}, {2000, 1100, false}, {2000, 1000, true}} {
		if got := worthReclaiming(tc.file*mebibyte, tc.inUse*mebibyte); got != tc.want {
			t.Errorf("disk space of a file of %d MiB with %d MiB in use is reclaimed: %t", tc.file, tc.inUse, got)
		}
	}
}

func BenchmarkReserve(b *testing.B) {
	l := NewLimiter(DefaultLimits(), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	write := Write{Namespace: "a", User: "alice", Bytes: 0}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Reserve(write); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMemory checks that limits are reduced while the memory is nearly full, whatever etcd has, and that
// the error says so.
func TestMemory(t *testing.T) {
	t.Parallel()
	for _, quota := range []int64{0, 1000 * mebibyte} {
		for percent, want := range map[int]struct{ heavy, light bool }{50: {true, true}, 79: {false, true}, 91: {false, false}} {
			t.Run(fmt.Sprintf("%d%% with a quota of %d", percent, quota), func(t *testing.T) {
				t.Parallel()
				l, _ := newLimiter()
				for range 6 {
					if _, err := l.Reserve(by("heavy", "eve")); err != nil {
						t.Fatal(err)
					}
				}
				l.SetUsage(Usage{File: mebibyte, InUse: mebibyte, Quota: quota, WrittenBefore: l.Written()})
				l.SetMemoryUsed(float64(percent) / 100)
				light := Write{Namespace: "light", User: "alice", Bytes: 1000}
				for _, write := range []struct {
					Write
					accepted bool
				}{{by("heavy", "eve"), want.heavy}, {light, want.light}, {exempt(light), true}} {
					_, err := l.Reserve(write.Write)
					if (err == nil) != write.accepted || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("has used %d%% of its memory", percent)) {
						t.Errorf("%+v: %v", write.Write, err)
					}
				}
				if used := l.etcdUsed(); used > 0.01 {
					t.Errorf("%f of etcd's quota count as used", used)
				}
				l.SetMemoryUsed(0.1)
				if _, err := l.Reserve(by("heavy", "eve")); err != nil {
					t.Errorf("after there was memory again: %v", err)
				}
			})
		}
	}
}

// TestMemoryIsShown checks that the share of the memory limit is a metric.
func TestMemoryIsShown(t *testing.T) { // not beside others, whose metric is this
	l, _ := newLimiter()
	l.SetMemoryUsed(0.25)
	if got, err := testutil.GetGaugeMetricValue(memoryUsedRatio); err != nil || got != 0.25 {
		t.Errorf("got %v, %v", got, err)
	}
}
