// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// sandbox is the i-th E2B sandbox, spread over a hundred teams with long names.
func sandbox(i int) *v1alpha1.Sandbox {
	namespace := fmt.Sprintf("a-team-with-a-name-of-forty-letters-%04d", i%100)
	claim := fmt.Sprintf("e%s", fmt.Sprintf("%013s", strconv.FormatInt(int64(i), 8)))
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("a-pool-of-python-interpreters-%08d", i), ResourceVersion: strconv.Itoa(1000 + i),
		UID:    types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)),
		Labels: map[string]string{v1alpha1.LabelClaimName: claim, v1alpha1.LabelSandboxID: v1alpha1.E2BSandboxID(namespace, claim)},
		Annotations: map[string]string{
			v1alpha1.AnnotationClaimedBy:  v1alpha1.E2BUser(namespace),
			v1alpha1.AnnotationE2BTimeout: "300",
		},
	}}
	sb.Status = testutil.ReadyStatus(i, time.Unix(0, 0))
	return sb
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestAHundredThousandRoutesFitInAHundredMebibytes(t *testing.T) {
	const routes, limit = 100_000, 100 << 20
	before := heap()
	s := newStore(clock.RealClock{}, sandboxproxy.NewConnections())
	for i := range routes {
		if err := s.Add(newEntry(sandbox(i))); err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - before
	t.Logf("%d routes take %.1f MiB", s.len(), float64(used)/(1<<20))
	if s.len() != routes || used > limit {
		t.Errorf("%d routes take %d bytes, want %d in at most %d", s.len(), used, routes, limit)
	}
	if _, ok := s.find(sandbox(77).Labels[v1alpha1.LabelSandboxID]); !ok {
		t.Error("a route is missing")
	}
	runtime.KeepAlive(s)
}

func BenchmarkFind(b *testing.B) {
	s := newStore(clock.RealClock{}, sandboxproxy.NewConnections())
	for i := range 100_000 {
		_ = s.Add(newEntry(sandbox(i)))
	}
	id := sandbox(77).Labels[v1alpha1.LabelSandboxID]
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := s.find(id); !ok {
				b.Fatal("a route is missing")
			}
		}
	})
}

// TestWhatWasReadYieldsToTheWatch: as soon as that has come as far.
func TestWhatWasReadYieldsToTheWatch(t *testing.T) {
	s := newStore(clock.RealClock{}, sandboxproxy.NewConnections())
	if err := s.Replace(nil, "1005"); err != nil {
		t.Fatal(err)
	}
	old, fresh := newEntry(sandbox(3)), newEntry(sandbox(7)) // of versions 1003 and 1007
	s.addRead(old)
	s.addRead(fresh)
	if _, ok := s.find(old.id); ok {
		t.Error("a sandbox that the watch has already reported as gone is found")
	}
	if _, ok := s.find(fresh.id); !ok {
		t.Error("a sandbox that the watch cannot know yet is not found")
	}
	s.UpdateResourceVersion("1007")
	if _, ok := s.find(fresh.id); ok {
		t.Error("a sandbox that is gone is found after the watch has come as far")
	}
	paused := newEntry(sandbox(8))
	paused.state = Paused
	newer := *paused
	newer.precedence.Version, newer.state = 2000, Running
	_ = s.Add(paused)
	s.addRead(&newer)
	if got, _ := s.find(paused.id); got.State != Running {
		t.Errorf("got %+v, and the newer one is running", got)
	}
	for i := range 2 * maxReadAhead {
		e := newEntry(sandbox(10_000 + i))
		s.addRead(e)
	}
	if len(s.readAhead) > maxReadAhead {
		t.Errorf("%d are kept, want at most %d", len(s.readAhead), maxReadAhead)
	}
}

// TestTwoSandboxesWithOneID: an id that is used again leads to the later claim.
func TestTwoSandboxesWithOneID(t *testing.T) {
	with := func(uid, claimed string, deleting bool) *v1alpha1.Sandbox {
		sb := sandbox(1)
		sb.UID, sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = types.UID(uid), claimed
		if deleting {
			sb.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return sb
	}
	const early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
	for name, test := range map[string]struct {
		reported []*v1alpha1.Sandbox
		want     types.UID
	}{
		"the later claim comes later":  {[]*v1alpha1.Sandbox{with("a", early, false), with("b", late, false)}, "b"},
		"the later claim comes first":  {[]*v1alpha1.Sandbox{with("b", late, false), with("a", early, false)}, "b"},
		"one that is going":            {[]*v1alpha1.Sandbox{with("b", early, false), with("a", late, true)}, "b"},
		"one that begins to go":        {[]*v1alpha1.Sandbox{with("a", late, false), with("b", early, false), with("a", late, true), with("b", early, false)}, "b"},
		"the same changes, and is one": {[]*v1alpha1.Sandbox{with("a", late, false), with("a", early, true)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(clock.RealClock{}, sandboxproxy.NewConnections())
			for _, sb := range test.reported {
				_ = s.Update(newEntry(sb))
			}
			id := sandbox(1).Labels[v1alpha1.LabelSandboxID]
			if got, ok := s.find(id); !ok || got.UID != test.want {
				t.Errorf("got %+v, %t; want %s", got, ok, test.want)
			}
			_ = s.Delete(newEntry(with("a", early, true)))
			_ = s.Delete(newEntry(with("b", early, true)))
			if _, ok := s.find(id); ok || len(s.watched.byID)+len(s.watched.byUID) != 0 {
				t.Errorf("something is left: %v, %v", s.watched.byID, s.watched.byUID)
			}
		})
	}
}

// TestIDsOfOtherNamespaces: the id of a claim whose name has two dashes, which clients can choose, is not that of a claim
// of another namespace.
func TestIDsOfOtherNamespaces(t *testing.T) {
	of := func(namespace, claim string) *v1alpha1.Sandbox {
		sb := sandbox(1)
		sb.Namespace, sb.UID = namespace, types.UID(namespace)
		sb.Labels = map[string]string{v1alpha1.LabelClaimName: claim, v1alpha1.LabelSandboxID: v1alpha1.E2BSandboxID(namespace, claim)}
		sb.Annotations[v1alpha1.AnnotationClaimedBy] = v1alpha1.E2BUser(namespace)
		return sb
	}
	const claim = "eabcdefghijklm"
	victim, intruder := of("a--b", claim), of("a", "b--"+claim)
	victim.Annotations[v1alpha1.AnnotationClaimTimestamp], intruder.Annotations[v1alpha1.AnnotationClaimTimestamp] = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
	for _, order := range [][]*v1alpha1.Sandbox{{victim, intruder}, {intruder, victim}} {
		s := newStore(clock.RealClock{}, sandboxproxy.NewConnections())
		for _, sb := range order {
			_ = s.Update(newEntry(sb))
		}
		for _, then := range []string{"while both are there", "when one is gone"} {
			if got, ok := s.find("a--b--" + claim); !ok || got.UID != victim.UID || got.Namespace != victim.Namespace {
				t.Errorf("%s, the id leads to %+v, %t", then, got, ok)
			}
			_ = s.Delete(newEntry(intruder))
		}
	}
}

// TestASandboxThatLosesItsIDLosesItsRoute.
func TestASandboxThatLosesItsIDLosesItsRoute(t *testing.T) {
	s := newStore(clock.RealClock{}, sandboxproxy.NewConnections())
	sb := sandbox(1)
	_ = s.Add(newEntry(sb))
	id := sb.Labels[v1alpha1.LabelSandboxID]
	sb.Annotations[v1alpha1.AnnotationClaimedBy] = "somebody"
	_ = s.Update(newEntry(sb))
	if _, ok := s.find(id); ok {
		t.Error("it is still found")
	}
}
