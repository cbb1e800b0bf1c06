// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// sandbox returns a sandbox of the pool ns/py that can be claimed.
func sandbox(name, version string, change ...func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "ns",
			Name:            name,
			ResourceVersion: version,
			Labels:          map[string]string{v1alpha1.LabelTemplateHash: "r1"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "py", UID: "u", Controller: new(true),
			}},
		},
		Status: v1alpha1.SandboxStatus{
			Phase:      v1alpha1.SandboxRunning,
			PodInfo:    v1alpha1.PodInfo{PodIP: "10.0.0.1"},
			Conditions: []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(sb)
	}
	return sb
}

func notReady(sb *v1alpha1.Sandbox) { sb.Status.Conditions[0].Status = metav1.ConditionFalse }

func TestCandidateOf(t *testing.T) {
	yes := Candidate{Pool: py, Name: "a", ResourceVersion: 7, Revision: "r1"}
	with := func(f func(*Candidate)) Candidate { c := yes; f(&c); return c }
	no := Candidate{}
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   Candidate
	}{
		"ready": {func(*v1alpha1.Sandbox) {}, yes},

		"not ready":           {notReady, no},
		"readiness unknown":   {func(sb *v1alpha1.Sandbox) { sb.Status.Conditions[0].Status = metav1.ConditionUnknown }, no},
		"no conditions":       {func(sb *v1alpha1.Sandbox) { sb.Status.Conditions = nil }, no},
		"pending":             {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxPending }, no},
		"failed":              {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxFailed }, no},
		"succeeded":           {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxSucceeded }, no},
		"terminating":         {func(sb *v1alpha1.Sandbox) { sb.Status.Phase = v1alpha1.SandboxTerminating }, no},
		"being deleted":       {func(sb *v1alpha1.Sandbox) { sb.DeletionTimestamp = &metav1.Time{Time: noon} }, no},
		"shut down long ago":  {func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: noon.Add(-time.Hour)} }, no},
		"to be shut down now": {func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: noon} }, no},
		"to be shut down":     {func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: noon.Add(time.Second)} }, yes},

		"locked":        {func(sb *v1alpha1.Sandbox) { sb.Annotations = map[string]string{v1alpha1.AnnotationLock: "x"} }, no},
		"empty lock":    {func(sb *v1alpha1.Sandbox) { sb.Annotations = map[string]string{v1alpha1.AnnotationLock: ""} }, yes},
		"paused":        {func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }, no},
		"annotated":     {func(sb *v1alpha1.Sandbox) { sb.Annotations = map[string]string{"a": "b"} }, yes},
		"no address":    {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = "" }, no},
		"only a status": {func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP, sb.Status.SandboxIP = "", "10.0.0.1" }, no},

		"no owner":           {func(sb *v1alpha1.Sandbox) { sb.OwnerReferences = nil }, no},
		"not its controller": {func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[0].Controller = nil }, no},
		"owned by a claim":   {func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[0].Kind = "SandboxClaim" }, no},
		"a set of another group": {
			func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[0].APIVersion = "apps/v1" }, no,
		},
		"the controlling set of two": {func(sb *v1alpha1.Sandbox) {
			other := sb.OwnerReferences[0]
			other.Name, other.Controller = "other", nil
			sb.OwnerReferences = append([]metav1.OwnerReference{other}, sb.OwnerReferences...)
		}, yes},
		"labels of another pool": {
			func(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelSandboxPool] = "other" }, yes,
		},
		"labelled as claimed": {func(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelSandboxClaimed] = "true" }, yes},
		"no labels":           {func(sb *v1alpha1.Sandbox) { sb.Labels = nil }, with(func(c *Candidate) { c.Revision = "" })},
		"another pool": {
			func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[0].Name = "js" }, with(func(c *Candidate) { c.Pool.Name = "js" }),
		},
		"another namespace": {
			func(sb *v1alpha1.Sandbox) { sb.Namespace = "two" }, with(func(c *Candidate) { c.Pool.Namespace = "two" }),
		},
		"no version":  {func(sb *v1alpha1.Sandbox) { sb.ResourceVersion = "" }, with(func(c *Candidate) { c.ResourceVersion = 0 })},
		"odd version": {func(sb *v1alpha1.Sandbox) { sb.ResourceVersion = "-1" }, with(func(c *Candidate) { c.ResourceVersion = 0 })},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sb := sandbox("a", "7", tc.change)
			before := sb.DeepCopy()
			got, ok := CandidateOf(sb, noon)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if ok != (tc.want != no) {
				t.Errorf("ok = %t", ok)
			}
			if diff := cmp.Diff(before, sb); diff != "" {
				t.Errorf("the sandbox was changed (-before +after):\n%s", diff)
			}
		})
	}
}

// heard is a Listener that remembers.
type heard struct{ pools []Pool }

func (h *heard) Stocked(p Pool) { h.pools = append(h.pools, p) }

func newFeed() (*Index, *Feed, *heard) {
	index, listener := New(), &heard{}
	return index, NewFeed(index, listener, func() time.Time { return noon }), listener
}

// TestStocked follows a sandbox through its life: the listener hears of it once
// each time that it comes into stock, when it can already be taken.
func TestStocked(t *testing.T) {
	index, feed, listener := newFeed()
	var taken []Candidate
	steps := []struct {
		what  string
		do    func()
		heard int
	}{
		{"created", func() { feed.SandboxChanged(sandbox("a", "1", notReady)) }, 0},
		{"ready", func() { feed.SandboxChanged(sandbox("a", "2")) }, 1},
		{"the same again", func() { feed.SandboxChanged(sandbox("a", "2")) }, 0},
		{"status written", func() { feed.SandboxChanged(sandbox("a", "3")) }, 0},
		{"of a new revision", func() {
			feed.SandboxChanged(sandbox("a", "4", func(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelTemplateHash] = "r2" }))
		}, 0},
		{"not ready", func() { feed.SandboxChanged(sandbox("a", "5", notReady)) }, 0},
		{"ready again", func() { feed.SandboxChanged(sandbox("a", "6")) }, 1},
		{"taken", func() { taken = index.Take(py, 1) }, 0},
		{"status written while taken", func() { feed.SandboxChanged(sandbox("a", "7")) }, 0},
		{"bound", func() { index.Bound(taken, 9) }, 0},
		{"a late one", func() { feed.SandboxChanged(sandbox("a", "8")) }, 0},
		{"back in the pool", func() { feed.SandboxChanged(sandbox("a", "10")) }, 1},
		{"deleted", func() { feed.SandboxDeleted(sandbox("a", "11")) }, 0},
		{"another", func() { feed.SandboxChanged(sandbox("b", "12")) }, 1},
		{"shut down", func() {
			feed.SandboxChanged(sandbox("b", "13", func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: noon} }))
		}, 0},
	}
	for _, step := range steps {
		listener.pools = nil
		step.do()
		if len(listener.pools) != step.heard {
			t.Errorf("%s: the listener heard %d times, want %d", step.what, len(listener.pools), step.heard)
		}
		for _, p := range listener.pools {
			if p != py {
				t.Errorf("%s: the listener heard of %v", step.what, p)
			}
			if index.Available(p) != 1 {
				t.Errorf("%s: the listener heard of a pool with %d sandboxes", step.what, index.Available(p))
			}
		}
	}
	mustBeEmpty(t, index)
}

// TestStockedCanTake makes sure that a listener may come back into the index.
func TestStockedCanTake(t *testing.T) {
	index := New()
	taker := &taking{index: index}
	feed := NewFeed(index, taker, func() time.Time { return noon })
	feed.SandboxesListed([]*v1alpha1.Sandbox{sandbox("a", "1"), sandbox("b", "2")}, 2)
	if got := names(taker.taken); got != "a b" {
		t.Errorf("taken while listening: %q", got)
	}
}

type taking struct {
	index *Index
	taken []Candidate
}

func (l *taking) Stocked(p Pool) { l.taken = append(l.taken, l.index.Take(p, 1)...) }

// TestTheClockDecides: the same object, unavailable only because time went by.
func TestTheClockDecides(t *testing.T) {
	index, now := New(), noon
	feed := NewFeed(index, &heard{}, func() time.Time { return now })
	sb := sandbox("a", "5", func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: noon.Add(time.Minute)} })
	feed.SandboxChanged(sb)
	if n := index.Available(py); n != 1 {
		t.Fatalf("%d available before the shutdownTime", n)
	}
	now = noon.Add(time.Minute)
	feed.SandboxChanged(sb)
	if n := index.Available(py); n != 0 {
		t.Errorf("%d available after the shutdownTime", n)
	}
	mustBeEmpty(t, index)
}

func TestSandboxListed(t *testing.T) {
	list := func(sandboxes ...*v1alpha1.Sandbox) []*v1alpha1.Sandbox { return sandboxes }
	tests := map[string]struct {
		before  func(*Index, *Feed)
		list    []*v1alpha1.Sandbox
		version uint64
		after   func(*Index, *Feed)
		want    string
		heard   int
	}{
		"first list": {
			list: list(sandbox("a", "3"), sandbox("b", "4", notReady), sandbox("c", "5")), version: 9,
			want: "a c", heard: 2,
		},
		"empty list": {
			before:  func(_ *Index, f *Feed) { f.SandboxChanged(sandbox("a", "3")) },
			version: 9, want: "", heard: 1,
		},
		"the same again": {
			before: func(_ *Index, f *Feed) { f.SandboxesListed(list(sandbox("a", "3"), sandbox("b", "4")), 9) },
			list:   list(sandbox("b", "4"), sandbox("a", "3")), version: 10,
			want: "a b", heard: 2,
		},
		"missing ones are gone": {
			before: func(_ *Index, f *Feed) { f.SandboxesListed(list(sandbox("a", "3"), sandbox("b", "4")), 9) },
			list:   list(sandbox("b", "4")), version: 10,
			want: "b", heard: 2,
		},
		"listed, no longer ready": {
			before: func(_ *Index, f *Feed) { f.SandboxesListed(list(sandbox("a", "3"), sandbox("b", "4")), 9) },
			list:   list(sandbox("a", "10", notReady), sandbox("b", "4")), version: 10,
			want: "b", heard: 2,
		},
		"newer news than the list": {
			before: func(_ *Index, f *Feed) { f.SandboxChanged(sandbox("a", "30")); f.SandboxChanged(sandbox("b", "31")) },
			list:   list(sandbox("b", "8", notReady)), version: 10,
			want: "a b", heard: 2,
		},
		"of another namespace": {
			before: func(_ *Index, f *Feed) { f.SandboxChanged(sandbox("a", "3")) },
			list:   list(sandbox("a", "3", func(sb *v1alpha1.Sandbox) { sb.Namespace = "two" })), version: 10,
			want: "", heard: 2,
		},
		"bound since": {
			before: func(x *Index, f *Feed) { f.SandboxChanged(sandbox("a", "3")); x.Bound(x.Take(py, 1), 20) },
			list:   list(sandbox("a", "3")), version: 10,
			want: "", heard: 1,
		},
		"missing while taken": {
			before: func(x *Index, f *Feed) { f.SandboxChanged(sandbox("a", "3")); x.Take(py, 1) },
			list:   list(), version: 10,
			after: func(x *Index, _ *Feed) {
				x.Release([]Candidate{{Pool: py, Name: "a", ResourceVersion: 3, Revision: "r1"}})
			},
			want: "", heard: 1,
		},
		"listed while taken": {
			before: func(x *Index, f *Feed) { f.SandboxChanged(sandbox("a", "3")); x.Take(py, 1) },
			list:   list(sandbox("a", "3")), version: 10,
			after: func(x *Index, _ *Feed) {
				x.Release([]Candidate{{Pool: py, Name: "a", ResourceVersion: 3, Revision: "r1"}})
			},
			want: "a", heard: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			index, feed, listener := newFeed()
			if tc.before != nil {
				tc.before(index, feed)
			}
			feed.SandboxesListed(tc.list, tc.version)
			if tc.after != nil {
				tc.after(index, feed)
			}
			if got := names(index.Take(py, 10)); got != tc.want {
				t.Errorf("available: %q, want %q", got, tc.want)
			}
			if len(listener.pools) != tc.heard {
				t.Errorf("the listener heard %d times, want %d", len(listener.pools), tc.heard)
			}
		})
	}
}

func TestSets(t *testing.T) {
	index, feed, listener := newFeed()
	set := func(revision string) *v1alpha1.SandboxSet {
		return &v1alpha1.SandboxSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "py", UID: "u"},
			Status:     v1alpha1.SandboxSetStatus{UpdateRevision: revision},
		}
	}
	expect := func(after, want string) {
		t.Helper()
		if got := names(peek(index, py, 10)); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	for _, sb := range []*v1alpha1.Sandbox{
		sandbox("old", "1"),
		sandbox("new", "2", func(sb *v1alpha1.Sandbox) { sb.Labels[v1alpha1.LabelTemplateHash] = "r2" }),
	} {
		feed.SandboxChanged(sb)
	}
	listener.pools = nil
	feed.SetChanged(set("r1"))
	expect("r1", "old new")
	feed.SetChanged(set("r2"))
	expect("r2", "new old")
	feed.SetChanged(set("r1"))
	expect("a roll back", "old new")
	feed.SetDeleted(set("r1"))
	expect("the set's end", "new old") // they stay until they are deleted
	if len(listener.pools) != 0 {
		t.Errorf("the listener heard of sets: %v", listener.pools)
	}
	feed.SandboxDeleted(sandbox("old", "5"))
	feed.SandboxDeleted(sandbox("new", "6"))
	feed.SetChanged(set("r1"))
	feed.SetDeleted(set("r1"))
	mustBeEmpty(t, index)
}
