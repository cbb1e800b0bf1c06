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

// newSpace returns a Space with limits of 1 MiB a second and 8 MiB at once for namespaces, and
// twice that for users.
func newSpace() (*Space, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return New(Limits{Namespace: Limit{mebibyte, 8 * mebibyte}, User: Limit{2 * mebibyte, 16 * mebibyte}}, c), c
}

// by is a write of 1 MiB.
func by(namespace, user string) Write {
	return Write{Namespace: namespace, User: user, Bytes: mebibyte}
}

// taken makes the same write until it is refused, and returns how many were taken, and why not
// more. It gives up after a thousand.
func taken(t *testing.T, s *Space, w Write) (int, *ExceededError) {
	t.Helper()
	for n := range 1000 {
		var exceeded *ExceededError
		if err := s.Spend(w); errors.As(err, &exceeded) {
			return n, exceeded
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return 1000, nil
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	s, clock := newSpace()
	n, why := taken(t, s, by("a", "eve"))
	if n != 8 || why == nil || why.Budget != BudgetNamespace || why.Name != "a" || why.RetryAfter != time.Second {
		t.Errorf("%d writes in a namespace were taken, and then %+v", n, why)
	}
	if n, why = taken(t, s, by("b", "eve")); n != 8 || why.Budget != BudgetNamespace {
		t.Errorf("%d writes in another namespace were taken, and then %+v", n, why)
	}
	if n, why = taken(t, s, by("c", "eve")); n != 0 || why == nil || why.Budget != BudgetUser || why.Name != "eve" {
		t.Errorf("%d writes of a user in a third namespace were taken, and then %+v", n, why)
	}
	if n, _ = taken(t, s, by("c", "alice")); n != 8 {
		t.Errorf("%d writes of another user were taken: what was refused has counted", n)
	}
	clock.Step(3 * time.Second)
	if n, _ = taken(t, s, by("a", "eve")); n != 3 {
		t.Errorf("%d writes were taken after 3 s, want 3", n)
	}
}

// A write is taken whatever its size while the budget is not overdrawn, and later ones wait for
// it. What was not written is given back.
func TestLargeWrites(t *testing.T) {
	t.Parallel()
	s, clock := newSpace()
	large := Write{Namespace: "a", User: "eve", Bytes: 12 * mebibyte}
	if err := s.Spend(large); err != nil {
		t.Fatal(err)
	}
	var exceeded *ExceededError
	if err := s.Spend(by("a", "eve")); !errors.As(err, &exceeded) || exceeded.RetryAfter != 4*time.Second {
		t.Errorf("a write after a large one: %v, %+v", err, exceeded)
	}
	s.GiveBack(large)
	if n, _ := taken(t, s, by("a", "eve")); n != 8 || s.Written() != 8*mebibyte {
		t.Errorf("%d writes were taken after what was given back, %d bytes in all", n, s.Written())
	}
	clock.Step(time.Hour)
	if n, _ := taken(t, s, by("a", "eve")); n != 8 {
		t.Errorf("%d writes were taken after an hour: budgets are saved up", n)
	}
}

// What is always taken counts, and alone keeps no others waiting while there is room in etcd.
func TestAlways(t *testing.T) {
	t.Parallel()
	s, _ := newSpace()
	forced := by("a", "")
	forced.Always = true
	if n, why := taken(t, s, forced); why != nil {
		t.Errorf("after %d writes: %v", n, why)
	}
	if n, _ := taken(t, s, by("a", "eve")); n != 2 {
		t.Errorf("%d writes of a user were taken, want 2 of 8", n)
	}
	s.Measured(75, 75, 100, s.Written())
	_ = s.Spend(by("b", "")) // the namespace has an account
	forced.Namespace = "b"
	if n, why := taken(t, s, forced); why != nil {
		t.Errorf("in an etcd that is nearly full, after %d writes: %v", n, why)
	}
	s.Measured(75, 75, 100, s.Written())
	if n, _ := taken(t, s, by("b", "alice")); n != 0 {
		t.Errorf("in an etcd that is nearly full %d writes of a user were taken", n)
	}
}

func TestNoLimits(t *testing.T) {
	t.Parallel()
	s := New(Limits{}, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	if n, why := taken(t, s, by("a", "eve")); why != nil {
		t.Errorf("after %d writes: %v", n, why)
	}
	s.Measured(95, 95, 100, s.Written())
	if _, why := taken(t, s, by("a", "eve")); why == nil || why.Budget != BudgetStore {
		t.Errorf("in an etcd that is nearly full: %v", why)
	}
}

// Near the quota those are refused first who have written most, and then all but deletes and
// controllers. What this server writes counts at once, without another measurement.
func TestNearlyFull(t *testing.T) {
	t.Parallel()
	const quota = 1000 * mebibyte
	for used, want := range map[int64]struct{ heavy, quiet bool }{
		100: {true, true}, 590: {true, true}, 700: {false, true}, 800: {false, true}, 895: {false, true}, 905: {false, false},
	} {
		t.Run(fmt.Sprint(used), func(t *testing.T) {
			t.Parallel()
			s, _ := newSpace()
			for range 6 {
				if err := s.Spend(by("heavy", "eve")); err != nil {
					t.Fatal(err)
				}
			}
			s.Measured((used-1)*mebibyte, (used-1)*mebibyte, quota, s.Written()-mebibyte)
			quiet := Write{Namespace: "quiet", User: "alice", Bytes: 1000}
			if err := s.Spend(by("heavy", "eve")); (err == nil) != want.heavy {
				t.Errorf("a write of one who has written much: %v", err)
			}
			if err := s.Spend(quiet); (err == nil) != want.quiet {
				t.Errorf("a write of one who has written little: %v", err)
			}
			quiet.Always = true
			if err := s.Spend(quiet); err != nil {
				t.Errorf("a controller: %v", err)
			}
		})
	}
	s, _ := newSpace()
	s.Measured(599*mebibyte, 599*mebibyte, quota, 0)
	for i := range 150 {
		_ = s.Spend(by(fmt.Sprint(i), ""))
	}
	if p := s.pressure(); p.squeeze < 0.7 || p.used < 0.74 {
		t.Errorf("150 MiB later: %+v", p)
	}
}

// While etcd is nearly full, those who write little go on for as long as it takes, and those
// who wrote much are not forgiven. When it is not any more, they are.
func TestQuietWritersGoOn(t *testing.T) {
	t.Parallel()
	s, clock := newSpace()
	for range 6 {
		if err := s.Spend(by("heavy", "eve")); err != nil {
			t.Fatal(err)
		}
	}
	for range 600 {
		s.Measured(85, 85, 100, s.Written()) // whatever is written, compaction makes room for
		if err := s.Spend(Write{Namespace: "quiet", User: "alice", Bytes: quietRate}); err != nil {
			t.Fatalf("one who writes %d bytes a second: %v", quietRate, err)
		}
		if err := s.Spend(by("heavy", "eve")); err == nil {
			t.Fatal("a write of one who has written much was taken")
		}
		clock.Step(time.Second)
	}
	s.Measured(10, 10, 100, s.Written())
	if err := s.Spend(by("heavy", "eve")); err != nil {
		t.Errorf("after there was room again: %v", err)
	}
}

// Accounts are kept only for what is not forgiven yet, and there are only so many of them.
func TestAccountsAreBounded(t *testing.T) {
	t.Parallel()
	s, clock := newSpace()
	for i := range maxAccounts + 100 {
		if err := s.Spend(Write{Namespace: fmt.Sprint(i), Bytes: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		n := 0
		s.namespaces.byName.Range(func(any, any) bool { n++; return true })
		return n
	}
	if n := count(); n != maxAccounts {
		t.Errorf("there are %d accounts, want %d", n, maxAccounts)
	}
	clock.Step(time.Second)
	s.Measured(0, 0, 0, 0)
	if n := count(); n != 0 || s.namespaces.n.Load() != 0 {
		t.Errorf("%d accounts are left, %d are counted", n, s.namespaces.n.Load())
	}
}

func BenchmarkSpend(b *testing.B) {
	s := New(DefaultLimits(), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	write := Write{Namespace: "a", User: "alice", Bytes: 0}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Spend(write); err != nil {
			b.Fatal(err)
		}
	}
}

// The quota counts the file, of which what is free cannot all be used again.
func TestFreeSpaceInTheFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ file, inUse, want float64 }{
		{1, 0.2, 1}, {0.96, 0.5, 0.9}, {0.9, 0.5, 0.75}, {0.7, 0.5, 0.6}, {0.5, 0.5, 0.5}, {0.9, 0.9, 0.9},
	} {
		s, _ := newSpace()
		const quota = 1e6
		s.Measured(int64(tc.file*quota), int64(tc.inUse*quota), quota, 0)
		if used := s.pressure().used; math.Abs(used-tc.want) > 1e-6 {
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
