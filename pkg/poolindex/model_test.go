// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package poolindex

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var modelSeed = flag.Uint64("model-seed", 0, "run TestAgainstModel with this seed alone")

// TestAgainstModel does long random sequences of everything that a feed and
// callers can do, to the index and to a model that is too simple to be wrong.
func TestAgainstModel(t *testing.T) {
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = seeds[:0]
		for range 20 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	steps := 4000
	if testing.Short() {
		steps = 1000
	}
	for _, seed := range seeds {
		w := newWorld(seed)
		for step := range steps {
			what := w.step()
			if err := w.check(); err != nil {
				t.Fatalf("after step %d, %s: %v\nrun again with -model-seed=%d", step, what, err, seed)
			}
		}
		if err := w.finish(); err != nil {
			t.Fatalf("at the end: %v\nrun again with -model-seed=%d", err, seed)
		}
		mustBeEmpty(t, w.index)
		if t.Failed() {
			t.Fatalf("run again with -model-seed=%d", seed)
		}
	}
}

// world is an index and the model of it. The versions that the feed brings may
// be late and may be repeated, but a watch never goes back behind a removal.
type world struct {
	rand    *rand.Rand
	index   *Index
	version uint64 // of the store
	keys    []entryKey
	boxes   map[entryKey]*box
	held    []Candidate // with callers
	// suspended are revisions, each of which has a sandbox that is queued.
	suspended map[poolRevision]bool
	resumed   uint64 // calls of Resume
	// takePods are the nodes that take pods; nil until nodes are listed.
	takePods map[string]bool
	failure  error
}

type poolRevision struct {
	pool     Pool
	revision string
}

// box is what the model knows of one sandbox. It is queued if it was available by the
// latest update, no caller holds it, and nothing as new has been done with it. It can be
// taken then if its revision is not suspended.
type box struct {
	latest  Candidate
	in      bool // the latest update: available, or not
	held    bool
	takenAt uint64
	spent   uint64      // bound or discarded at this version
	bound   uint64      // bound at this version
	removed uint64      // newest removal that the feed reported
	history []Candidate // what the feed reported
}

func (b *box) newest() uint64 { return max(b.latest.ResourceVersion, b.spent) }

func (b *box) queued() bool { return b.in && !b.held && b.latest.ResourceVersion > b.spent }

func (w *world) available(b *box) bool {
	return b.queued() && !w.suspended[poolRevision{b.latest.Pool, b.latest.Revision}]
}

var (
	modelPools = []Pool{
		{Namespace: "one", Name: "py", UID: "1"}, {Namespace: "one", Name: "py", UID: "2"}, {Namespace: "one", Name: "js", UID: "3"},
		{Namespace: "two", Name: "py", UID: "4"}, {Namespace: "two", Name: "py", UID: "5"}, {Namespace: "two", Name: "js", UID: "6"},
	}
	modelRevisions = []string{"r1", "r2", "r3"}
	modelNodes     = []string{"", "n1", "n2", "n3"}
)

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 0)), index: New(), boxes: map[entryKey]*box{}, version: 1, suspended: map[poolRevision]bool{},
	}
	for _, namespace := range []string{"one", "two"} {
		for i := range 8 {
			key := entryKey{namespace, fmt.Sprint("sb-", i)}
			w.keys = append(w.keys, key)
			w.boxes[key] = &box{}
		}
	}
	return w
}

func pick[T any](w *world, from []T) T { return from[w.rand.IntN(len(from))] }

// step does something, and returns what.
func (w *world) step() string {
	key := pick(w, w.keys)
	b := w.boxes[key]
	switch n := w.rand.IntN(100); {
	case n < 30:
		w.version++
		c := Candidate{Pool: pick(w, modelPools), Name: key.name, ResourceVersion: w.version, Revision: pick(w, modelRevisions), Node: pick(w, modelNodes)}
		for c.Pool.Namespace != key.namespace {
			c.Pool = pick(w, modelPools)
		}
		w.upsert(b, c)
		return fmt.Sprint("upsert ", c)
	case n < 40:
		again := slices.DeleteFunc(slices.Clone(b.history), func(c Candidate) bool { return c.ResourceVersion <= b.removed })
		if len(again) == 0 {
			return "nothing"
		}
		c := pick(w, again)
		w.upsert(b, c)
		return fmt.Sprint("repeated upsert ", c)
	case n < 48:
		w.version++
		w.remove(key, b, w.version)
		return fmt.Sprint("remove ", key, w.version)
	case n < 55:
		old := w.rand.Uint64N(b.newest() + 1)
		if w.rand.IntN(2) == 0 {
			old = b.latest.ResourceVersion // the same object, looked at later
		}
		w.remove(key, b, old)
		return fmt.Sprint("late remove ", key, old)
	case n < 57:
		return w.changeNodes()
	case n < 60:
		return w.suspend(poolRevision{pick(w, modelPools), pick(w, modelRevisions)})
	case n < 62:
		return w.resume()
	case n < 77:
		return w.take(pick(w, modelPools), w.rand.IntN(5))
	case n < 87:
		return w.bind()
	case n < 90:
		cs := w.someHeld()
		w.index.Discard(cs...)
		w.answered(cs, 0)
		return fmt.Sprint("discard ", cs)
	case n < 95:
		cs := w.someHeld()
		w.index.Release(cs)
		for _, c := range cs {
			w.boxes[c.key()].held = false
		}
		return fmt.Sprint("release ", cs)
	case n < 97:
		return w.list()
	default:
		p, revision := pick(w, modelPools), pick(w, append(modelRevisions, ""))
		w.index.MarkTarget(p, revision)
		return fmt.Sprint("current ", p, revision)
	}
}

func (w *world) upsert(b *box, c Candidate) {
	could := w.available(b)
	pool := b.latest.Pool
	b.history = append(b.history, c)
	if c.ResourceVersion > b.newest() {
		b.latest, b.in = c, true
		w.forgetEmpty()
	}
	stocked := w.index.Upsert(c)
	if want := w.available(b) && (!could || pool != b.latest.Pool); stocked != want {
		w.fail("Upsert(%v) = %t, want %t", c, stocked, want)
	}
}

func (w *world) remove(key entryKey, b *box, version uint64) {
	if version >= b.newest() {
		b.latest, b.in = Candidate{ResourceVersion: version}, false
	}
	b.removed = max(b.removed, version)
	w.forgetEmpty()
	w.index.Remove(key.namespace, key.name, version)
}

// forgetEmpty resumes the revisions that have no sandbox left.
func (w *world) forgetEmpty() {
	left := map[poolRevision]bool{}
	for _, b := range w.boxes {
		if r := (poolRevision{b.latest.Pool, b.latest.Revision}); b.queued() && w.suspended[r] {
			left[r] = true
		}
	}
	w.suspended = left
}

// suspend suspends a revision for want of a template that was looked for before a
// Resume, or after the last one.
func (w *world) suspend(r poolRevision) string {
	asOf := w.resumed - min(w.resumed, w.rand.Uint64N(4)/3)
	if asOf == w.resumed {
		w.suspended[r] = true
		w.forgetEmpty()
	}
	if done := w.index.Suspensions.Suspend(r.pool, r.revision, asOf); done != (asOf == w.resumed) {
		w.fail("Suspend(%v, %d) = %t after %d Resumes", r, asOf, done, w.resumed)
	}
	return fmt.Sprint("suspend ", r, asOf)
}

// resume resumes the pools of a namespace.
func (w *world) resume() string {
	namespace := pick(w, w.keys).namespace
	want := map[Pool]bool{}
	for r := range w.suspended {
		if r.pool.Namespace == namespace {
			want[r.pool] = true
			delete(w.suspended, r)
		}
	}
	w.resumed++
	got := map[Pool]bool{}
	for _, p := range w.index.Suspensions.Resume(namespace, func(Pool) bool { return true }) {
		got[p] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.fail("resumed pools (-want +got):\n%s", diff)
	}
	return fmt.Sprint("resume ", namespace)
}

// changeNodes lists all nodes, or changes one.
func (w *world) changeNodes() string {
	if w.takePods == nil || w.rand.IntN(4) == 0 {
		w.takePods = map[string]bool{}
		for _, name := range modelNodes[1:] {
			if w.rand.IntN(4) > 0 { // the others are gone
				w.takePods[name] = w.rand.IntN(2) > 0
			}
		}
		w.index.Nodes.Replace(maps.Clone(w.takePods))
		return fmt.Sprint("list nodes ", w.takePods)
	}
	name, takes := pick(w, modelNodes[1:]), w.rand.IntN(2) > 0
	w.takePods[name] = takes
	w.index.Nodes.SetTakesPods(name, takes)
	return fmt.Sprint("change node ", name, takes)
}

func (w *world) avoided(c Candidate) bool {
	return w.takePods != nil && c.Node != "" && !w.takePods[c.Node]
}

func (w *world) take(p Pool, n int) string {
	peeked := peek(w.index, p, n)
	want, regular := min(n, w.stock(p)), w.regular(p)
	var cs []Candidate
	if w.rand.IntN(4) == 0 {
		if peeked = w.index.Peek(p, n, false); want > regular {
			want = regular
		}
		cs = w.index.TakeRegular(p, n)
	} else {
		cs = w.index.Take(p, n)
	}
	if len(cs) != want {
		w.fail("%d are taken of %v: %v, want %d of them", n, p, cs, want)
	}
	for i, c := range cs {
		if w.avoided(c) != (i >= regular) {
			w.fail("%d are taken of %v, of which %d are on nodes that take pods: %v", n, p, regular, cs)
		}
	}
	if diff := cmp.Diff(peeked, cs); diff != "" && len(peeked)+len(cs) > 0 {
		w.fail("Peek(%v, %d) and Take (-peeked +taken):\n%s", p, n, diff)
	}
	for _, c := range cs {
		b := w.boxes[c.key()]
		switch {
		case b.held:
			w.fail("%v is handed out to two callers", c)
		case b.bound >= c.ResourceVersion:
			w.fail("%v is handed out, and was bound at %d", c, b.bound)
		case !w.available(b) || b.latest != c || c.Pool != p:
			w.fail("%v is handed out of %v, the model has %+v", c, p, b)
		}
		b.held, b.takenAt = true, c.ResourceVersion
	}
	w.held = append(w.held, cs...)
	return fmt.Sprint("take ", p, n, cs)
}

// bind binds some of what callers hold. The watch may be ahead of the caller.
func (w *world) bind() string {
	cs := w.someHeld()
	w.version++
	at := w.version
	for _, c := range cs {
		key := c.key()
		switch w.rand.IntN(4) {
		case 0:
			w.remove(key, w.boxes[key], at)
		case 1:
			w.remove(key, w.boxes[key], at)
			w.version++
			c.ResourceVersion = w.version // it was given back to its pool
			w.upsert(w.boxes[key], c)
		}
	}
	w.index.Bound(cs, at)
	w.answered(cs, at)
	return fmt.Sprint("bind ", cs, at)
}

func (w *world) answered(cs []Candidate, bound uint64) {
	for _, c := range cs {
		b := w.boxes[c.key()]
		b.held, b.spent, b.bound = false, max(b.spent, b.takenAt, bound), max(b.bound, bound)
	}
}

// list is a fresh list, as of a version that need not be the newest.
func (w *world) list() string {
	version := w.version - min(w.version, w.rand.Uint64N(30))
	listed := map[entryKey]bool{}
	for _, key := range w.keys {
		b := w.boxes[key]
		listed[key] = w.rand.IntN(4) > 0
		if listed[key] || b.newest() > version {
			continue
		}
		b.latest, b.in = Candidate{ResourceVersion: version}, false
		b.removed = max(b.removed, version)
	}
	w.forgetEmpty()
	w.index.Retain(func(namespace, name string) bool { return listed[entryKey{namespace, name}] }, version)
	return fmt.Sprint("list ", listed, version)
}

// someHeld takes up to three candidates out of the hands of callers.
func (w *world) someHeld() []Candidate {
	w.rand.Shuffle(len(w.held), func(i, j int) { w.held[i], w.held[j] = w.held[j], w.held[i] })
	n := min(len(w.held), w.rand.IntN(4))
	cs := slices.Clone(w.held[:n])
	w.held = slices.Delete(w.held, 0, n)
	return cs
}

func (w *world) stock(p Pool) int {
	n := 0
	for _, b := range w.boxes {
		if w.available(b) && b.latest.Pool == p {
			n++
		}
	}
	return n
}

// regular is how much of the stock is not on nodes that take no pods.
func (w *world) regular(p Pool) int {
	n := 0
	for _, b := range w.boxes {
		if w.available(b) && b.latest.Pool == p && !w.avoided(b.latest) {
			n++
		}
	}
	return n
}

func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
	}
}

func (w *world) check() error {
	for _, p := range modelPools {
		n := w.stock(p)
		if got := w.index.Available(p); got != n {
			w.fail("Available(%v) = %d, want %d", p, got, n)
		}
		suspended := slices.ContainsFunc(modelRevisions, func(revision string) bool { return w.suspended[poolRevision{p, revision}] })
		if got := w.index.Suspensions.Suspended(p); got != suspended {
			w.fail("Suspended(%v) = %t, want %t", p, got, suspended)
		}
	}
	return w.failure
}

// finish resumes and takes all there is, which must be all that the model has, and then
// releases every sandbox.
func (w *world) finish() error {
	w.index.Release(w.held)
	for _, c := range w.held {
		w.boxes[c.key()].held = false
	}
	w.index.Suspensions.ResumeAll()
	clear(w.suspended)
	want := map[entryKey]Candidate{}
	for key, b := range w.boxes {
		if w.available(b) {
			want[key] = b.latest
		}
	}
	got := map[entryKey]Candidate{}
	for _, p := range modelPools {
		for _, c := range w.index.Take(p, len(w.keys)) {
			got[c.key()] = c
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entryKey{})); diff != "" {
		w.fail("what could be taken (-model +index):\n%s", diff)
	}
	w.version++
	w.index.Discard(slices.Collect(maps.Values(got))...)
	for _, key := range w.keys {
		w.index.Remove(key.namespace, key.name, w.version)
	}
	for _, p := range modelPools {
		w.index.MarkTarget(p, "")
	}
	return w.failure
}
