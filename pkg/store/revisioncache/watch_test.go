// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
)

func since(revision uint64, selector labels.Selector) *metainternalversion.ListOptions {
	return &metainternalversion.ListOptions{ResourceVersion: format(revision), LabelSelector: selector}
}

// A client whose watch ends in the middle of a revision, and that continues from
// the event it saw last, receives the events of the revision that it has not seen.
func TestResumedWatch(t *testing.T) {
	const n = 10
	p := newPool(t)
	tests := map[string]struct {
		selector string
		want     bool // whether the objects match in the end
	}{
		"all":                   {"", true},
		"that match both times": {label + " in (before, after)", true},
		"that come to match":    {label + " = after", true},
		"that match no longer":  {label + " = before", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for seen := 1; seen <= n; seen++ {
				all := names(n)
				before := p.write(t, "before", all...)
				p.write(t, "single", "single")
				selector := mustParse(t, tc.selector)
				client := view{}
				if selector.Matches(labels.Set{label: "before"}) {
					client = at(before, all...)
				}

				first := p.mustWatch(t, since(p.write(t, "single", "single"), selector))
				first.view = client
				revision := p.write(t, "after", all...)
				for range seen {
					first.next(t)
				}
				first.Stop()

				then := p.mustWatch(t, since(revision, selector))
				then.view = client
				got := view{}
				maps.Copy(got, then.sentinel(t, p, selector))
				want := view{}
				if tc.want {
					want = at(revision, all...)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("after %d of %d events (-want +got):\n%s", seen, n, diff)
				}
			}
		})
	}
}

// sentinel takes in what is on its way, and returns what the client knows then,
// without the objects that this is found out with.
func (w *watching) sentinel(t *testing.T, p *pool, selector labels.Selector) view {
	t.Helper()
	round := "sentinel"
	for _, r := range []string{"sentinel", "before", "after"} {
		if selector.Matches(labels.Set{label: r}) {
			round = r
			break
		}
	}
	w.until(t, "sentinel", p.write(t, round, "sentinel"))
	w.Stop()
	p.remove(t, "sentinel")
	delete(w.view, "sentinel")
	delete(w.view, "single")
	return w.view
}

// What is known to have changed one object only is not sent again.
func TestNoDuplicates(t *testing.T) {
	p := newPool(t)
	p.write(t, "first", names(5)...)
	from := p.write(t, "single", "single")
	p.now(t)
	watches := map[string]*watching{}
	for i := range 5 {
		p.now(t)
		watches[fmt.Sprintf("from single revision %d", i)] = p.mustWatch(t, since(from, nil))
		from = p.write(t, "single", fmt.Sprintf("single-%d", i))
	}
	p.now(t)
	watches["from a list"] = p.mustWatch(t, since(version(t, p.now(t)), nil))
	revision := p.write(t, "second", names(5)...)
	last := p.write(t, "last", "last")
	for name, w := range watches {
		got := w.until(t, "last", last)
		if got["single"] != 0 {
			t.Errorf("%s: the revision that it continues from is sent", name)
		}
		for object, n := range w.events {
			if n != 1 {
				t.Errorf("%s: %d events of %s", name, n, object)
			}
		}
		for _, object := range names(5) {
			if got[object] != revision {
				t.Errorf("%s: %s is at %d, want %d", name, object, got[object], revision)
			}
		}
	}
}

// Every client lists and watches from there. The cache has no history before its
// own list, which must not matter.
func TestWatchFromFirstList(t *testing.T) {
	tests := map[string]func(*testing.T, *pool){
		"nothing is there":                          func(*testing.T, *pool) {},
		"the last change was of one object":         func(t *testing.T, p *pool) { p.write(t, "first", "a"); p.write(t, "first", "b") },
		"the last change was a transaction":         func(t *testing.T, p *pool) { p.write(t, "first", "a", "b") },
		"the last change was of something else":     func(t *testing.T, p *pool) { p.write(t, "first", "a", "b"); p.writeElse(t) },
		"the last of a transaction is left of many": func(t *testing.T, p *pool) { p.write(t, "first", "a", "b"); p.write(t, "first", "b") },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			one := newPool(t)
			prepare(t, one)
			p := newPoolOn(t, one.fixture)
			for i, list := range map[string]*metainternalversion.ListOptions{"any": {ResourceVersion: "0"}, "now": {}} {
				w := p.mustWatch(t, since(version(t, p.mustList(t, list)), nil))
				last := one.write(t, "last", "last-"+i)
				w.until(t, "last-"+i, last)
				w.Stop()
			}
		})
	}
}

// A client that was cut off in the middle of a revision, and comes back to a
// server that has started since, receives the rest of the revision as well, or is
// asked to list again.
func TestResumedOnAnotherServer(t *testing.T) {
	tests := map[string]struct {
		later  bool // there is a later revision
		listed bool // the server's cache cannot begin with initial events
	}{
		"the revision is the last one":      {},
		"there is a later one":              {later: true},
		"the cache begins with a list":      {listed: true},
		"and there is a later revision too": {listed: true, later: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			const n = 10
			one := newPool(t)
			all := names(n)
			one.write(t, "before", all...)
			client := one.mustWatch(t, since(one.write(t, "single", "single"), nil))
			revision := one.write(t, "after", all...)
			for range n / 2 {
				client.next(t)
			}
			client.Stop()
			if tc.later {
				one.write(t, "single", "single")
			}

			featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, !tc.listed)
			two := newPoolOn(t, one.fixture)
			then := two.mustWatch(t, since(revision, nil))
			then.view = client.view
			last := one.write(t, "last", "last")
			if then.toldToList(t, last) {
				return
			}
			if diff := cmp.Diff(at(revision, all...), without(then.view, "last", "single")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// toldToList takes in events until the object "last" is at a revision, or the
// server has no more of the history.
func (w *watching) toldToList(t *testing.T, last uint64) bool {
	t.Helper()
	for w.view["last"] != last {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("the watch ended; known is %v", w.view)
		}
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				t.Fatal(err)
			}
			return true
		}
		w.take(t, event)
	}
	return false
}

func without(v view, names ...string) view {
	for _, name := range names {
		delete(v, name)
	}
	return v
}

// A watch that asks for initial events gets all objects, a bookmark that ends
// them, and then what happens.
func TestInitialEvents(t *testing.T) {
	p := newPool(t)
	p.write(t, "first", names(10)...)
	revision := p.write(t, "second", names(10)...)
	single := p.write(t, "single", "single")
	for name, from := range map[string]string{"now": "", "any": "0", "not older": format(revision), "not older than now": format(single)} {
		t.Run(name, func(t *testing.T) {
			p.now(t) // the cache knows what the last one removed
			w := p.mustWatch(t, &metainternalversion.ListOptions{
				ResourceVersion: from, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
				SendInitialEvents: new(true), AllowWatchBookmarks: true, LabelSelector: mustParse(t, label+" in (second, last)"),
			})
			for w.bookmark == 0 {
				w.next(t)
			}
			if diff := cmp.Diff(at(revision, names(10)...), w.view); diff != "" {
				t.Errorf("initial events (-want +got):\n%s", diff)
			}
			if w.bookmark < single {
				t.Errorf("the bookmark is at %d, want %d at least", w.bookmark, single)
			}
			w.until(t, "last", p.write(t, "last", "last"))
			p.remove(t, "last")
		})
	}
}

// Clients that stop and continue all the time, by the last event they saw or with
// initial events, miss nothing. With -plain they do.
func TestWatchStorm(t *testing.T) {
	const rounds, objects, clients = 150, 40, 6
	p := newPool(t)
	all := names(objects)
	first := p.write(t, "first", all...)

	var writing, watching sync.WaitGroup
	var written history
	for _, part := range []func() []string{
		func() []string { return all[rand.IntN(objects):] },
		func() []string { return []string{"single"} },
	} {
		writing.Go(func() {
			for i := range rounds {
				names := part()
				revision, err := p.commit(t.Context(), fmt.Sprint(i), names...)
				if err != nil {
					t.Errorf("round %d: %v", i, err)
					return
				}
				written.add(revision, names...)
			}
		})
	}
	last := ending{known: make(chan struct{})}
	watchers := make([]*restless, clients)
	for i := range clients {
		c := &restless{pool: p, last: &last, now: at(first, all...), version: first, initial: i%2 == 0}
		watchers[i] = c
		watching.Go(func() {
			if err := c.run(t.Context()); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	writing.Wait()
	last.revision = p.write(t, "last", "last")
	close(last.known)
	watching.Wait()
	there := viewOf(t, p.now(t))
	for i, c := range watchers {
		if diff := cmp.Diff(there, c.now); diff != "" {
			t.Errorf("client %d (-there +known):\n%s", i, diff)
		}
		for _, w := range written.writes {
			if !c.seen.has(w) && !c.jumped(w.revision) {
				t.Errorf("client %d never saw that %s was at %d", i, w.name, w.revision)
			}
		}
	}
}

// history is what was written, or seen to be.
type history struct {
	mu     sync.Mutex
	writes []write
	set    map[write]bool
}

type write struct {
	name     string
	revision uint64
}

func (h *history) add(revision uint64, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.set == nil {
		h.set = map[write]bool{}
	}
	for _, name := range names {
		w := write{name, revision}
		h.writes = append(h.writes, w)
		h.set[w] = true
	}
}

func (h *history) has(w write) bool { return h.set[w] }

// ending is the revision of the last object to be written, once it is known.
type ending struct {
	known    chan struct{}
	revision uint64
}

// restless is a client that ends its watches early.
type restless struct {
	*pool
	last    *ending
	initial bool // asks for initial events now and then

	now     view
	version uint64
	seen    history
	// jumps are from where to where it went by initial events, both included.
	jumps [][2]uint64
}

func (c *restless) jumped(over uint64) bool {
	return slices.ContainsFunc(c.jumps, func(jump [2]uint64) bool { return jump[0] <= over && over <= jump[1] })
}

// run watches, again and again, until it knows of the last object.
func (c *restless) run(ctx context.Context) error {
	for !c.done() && ctx.Err() == nil {
		if err := c.once(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *restless) done() bool {
	select {
	case <-c.last.known:
		return c.now["last"] == c.last.revision
	default:
		return false
	}
}

// once takes in a few events of one watch.
func (c *restless) once(ctx context.Context) error {
	options := &metainternalversion.ListOptions{ResourceVersion: format(c.version), AllowWatchBookmarks: true}
	var anew view
	if c.initial && rand.IntN(4) == 0 {
		options.ResourceVersion, options.ResourceVersionMatch = "", metav1.ResourceVersionMatchNotOlderThan
		options.SendInitialEvents, anew = new(true), view{}
	}
	w, err := c.watchWith(ctx, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	known := c.last.known
	for n := rand.IntN(60) + 1; n > 0 || anew != nil; n-- {
		if anew == nil && c.done() {
			return nil
		}
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if anew, err = c.take(event, anew); err != nil {
				return err
			}
		case <-known:
			known = nil
		}
	}
	return nil
}

// take takes in one event. anew are the initial events so far, nil after them.
func (c *restless) take(event watch.Event, anew view) (view, error) {
	if event.Type == watch.Error {
		return anew, apierrors.FromObject(event.Object)
	}
	obj := unwrap(event.Object)
	at, err := parseVersion(obj.GetResourceVersion())
	switch {
	case err != nil:
		return anew, err
	case event.Type == watch.Bookmark:
		if anew != nil {
			c.jumps = append(c.jumps, [2]uint64{c.version, at})
			c.now = anew
		}
		c.version = at
		return nil, nil
	case anew != nil:
		anew[obj.GetName()] = at
		return anew, nil
	case at < c.now[obj.GetName()]:
		return nil, fmt.Errorf("%s goes back from %d to %d", obj.GetName(), c.now[obj.GetName()], at)
	}
	c.now[obj.GetName()], c.version = at, at
	c.seen.add(at, obj.GetName())
	return nil, nil
}
