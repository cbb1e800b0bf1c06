// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// event is what a watcher received.
type event struct {
	Type     watch.EventType
	Revision int64
	// Key is that of the object; empty for a bookmark.
	Key string
}

// stream is one watch of a watcher.
type stream struct {
	Server int
	// From is the revision that it was to begin after.
	From int64
	// Continues: it begins where the stream before ended. Otherwise it begins after a list.
	Continues bool
	Events    []event
}

// watcher watches a resource in all namespaces, each time at another server.
type watcher struct {
	name, resource string
	servers        []*server
	next           int

	mu      sync.Mutex
	streams []*stream
	at      int64
}

// startWatchers starts watchers of claims and of sandboxes, one for each server to begin with. They
// end with the test.
func startWatchers(t *testing.T, c *cluster) []*watcher {
	t.Helper()
	var all []*watcher
	var running sync.WaitGroup
	for i := range c.servers {
		for _, resource := range []string{"sandboxclaims", "sandboxes"} {
			w := &watcher{name: fmt.Sprintf("watcher %d of %s", i, resource), resource: resource, servers: c.servers, next: i}
			all = append(all, w)
			running.Go(func() { w.run(t.Context()) })
		}
	}
	t.Cleanup(running.Wait)
	return all
}

func (w *watcher) run(ctx context.Context) {
	continues := false
	for ctx.Err() == nil {
		if !continues {
			if err := w.list(ctx); err != nil {
				w.next++
				pause(ctx, 50*time.Millisecond)
				continue
			}
		}
		err := w.watch(ctx, continues)
		continues = !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
		w.next++
		pause(ctx, 20*time.Millisecond)
	}
}

func (w *watcher) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	agents := w.servers[w.next%len(w.servers)].Client.AgentsV1alpha1()
	var version string
	if w.resource == "sandboxclaims" {
		list, err := agents.SandboxClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		version = list.ResourceVersion
	} else {
		list, err := agents.Sandboxes(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		version = list.ResourceVersion
	}
	revision, err := strconv.ParseInt(version, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = revision
	return err
}

// watch receives events until the watch ends.
func (w *watcher) watch(ctx context.Context, continues bool) error {
	i := w.next % len(w.servers)
	s := &stream{Server: i, From: w.position(), Continues: continues}
	agents := w.servers[i].Client.AgentsV1alpha1()
	open := agents.Sandboxes(metav1.NamespaceAll).Watch
	if w.resource == "sandboxclaims" {
		open = agents.SandboxClaims(metav1.NamespaceAll).Watch
	}
	// Watches end by themselves, so that there are many.
	opening, opened := context.WithCancel(ctx)
	timer := time.AfterFunc(callTimeout, opened)
	defer opened()
	events, err := open(opening, metav1.ListOptions{
		ResourceVersion: strconv.FormatInt(s.From, 10), AllowWatchBookmarks: true, TimeoutSeconds: new(int64(4)),
	})
	if !timer.Stop() || err != nil {
		return err
	}
	defer events.Stop()
	silent := time.NewTimer(2 * callTimeout) // a server that is stopped ends no watch
	defer silent.Stop()
	w.mu.Lock()
	w.streams = append(w.streams, s)
	w.mu.Unlock()
	for {
		select {
		case <-silent.C:
			return nil
		case received, ok := <-events.ResultChan():
			if !ok {
				return nil
			}
			if received.Type == watch.Error {
				return apierrors.FromObject(received.Object)
			}
			if err := w.receive(s, received); err != nil {
				return err
			}
		}
	}
}

func (w *watcher) receive(s *stream, received watch.Event) error {
	object, ok := received.Object.(metav1.Object)
	if !ok {
		return fmt.Errorf("received a %T", received.Object)
	}
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	e := event{Type: received.Type, Revision: revision}
	if e.Type != watch.Bookmark {
		e.Key = w.resource + "/" + object.GetNamespace() + "/" + object.GetName()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Events = append(s.Events, e)
	w.at = max(w.at, revision)
	return nil
}

func (w *watcher) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// finish waits until the watcher has seen the last change, and returns what it received.
func (w *watcher) finish(t *testing.T, changes []change) []*stream {
	t.Helper()
	var last int64
	for i := range changes {
		if changes[i].Resource == w.resource {
			last = changes[i].Revision
		}
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if at := w.position(); at < last {
			return fmt.Errorf("%s is at revision %d, and %d is stored", w.name, at, last)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var streams []*stream
	for _, s := range w.streams {
		kept := *s
		streams = append(streams, &kept)
	}
	return streams
}

// checkStreams returns in what the streams of a watcher of a resource differ from what was stored. Each
// revision is to be in them once and in order. Only one that a watch continues from may be sent
// again, because it may have been sent in part.
func checkStreams(resource string, streams []*stream, changes []change) (problems []string) {
	stored := map[int64]map[string]watch.EventType{} // by revision and key
	var revisions []int64
	for i := range changes {
		c := &changes[i]
		if c.Resource != resource {
			continue
		}
		if stored[c.Revision] == nil {
			stored[c.Revision] = map[string]watch.EventType{}
			revisions = append(revisions, c.Revision)
		}
		kind := watch.Modified
		switch {
		case c.object() == nil:
			kind = watch.Deleted
		case c.Created:
			kind = watch.Added
		}
		stored[c.Revision][c.key()] = kind
	}
	// at is the revision that was received last, and received are its keys in any stream.
	var at int64
	received := map[string]bool{}
	i := 0 // of the first of revisions that is later than at
	// advance moves to a revision. All of what is before has to be there.
	advance := func(s *stream, to int64) {
		for key := range stored[at] {
			if !received[key] {
				problems = append(problems, fmt.Sprintf("server %d, watch from %d: %s at revision %d is missing", s.Server, s.From, key, at))
			}
		}
		for ; i < len(revisions) && revisions[i] <= to; i++ {
			if revisions[i] < to {
				problems = append(problems, fmt.Sprintf("server %d, watch from %d: revision %d is missing before %d", s.Server, s.From, revisions[i], to))
			}
		}
		at, received = to, map[string]bool{}
	}
	for _, s := range streams {
		if !s.Continues {
			at, received = s.From, map[string]bool{}
			i, _ = slices.BinarySearch(revisions, at+1)
			for key := range stored[at] {
				received[key] = true
			}
		}
		inStream := map[string]bool{}
		for _, e := range s.Events {
			switch {
			case e.Revision < at:
				problems = append(problems, fmt.Sprintf("server %d, watch from %d: %s %s at revision %d after revision %d", s.Server, s.From, e.Type, e.Key, e.Revision, at))
				continue
			case e.Revision > at:
				advance(s, e.Revision)
				inStream = map[string]bool{}
			}
			if e.Type == watch.Bookmark {
				// It may come between the events of its revision, which a watch from there sends again.
				if len(stored[at]) > 0 && len(received) == 0 {
					problems = append(problems, fmt.Sprintf("server %d, watch from %d: bookmark of revision %d before its events", s.Server, s.From, at))
				}
				continue
			}
			switch kind, is := stored[e.Revision][e.Key]; {
			case !is:
				problems = append(problems, fmt.Sprintf("server %d, watch from %d: %s %s at revision %d is not stored", s.Server, s.From, e.Type, e.Key, e.Revision))
			case kind != e.Type:
				problems = append(problems, fmt.Sprintf("server %d, watch from %d: %s %s at revision %d, want %s", s.Server, s.From, e.Type, e.Key, e.Revision, kind))
			case inStream[e.Key], received[e.Key] && e.Revision != s.From:
				problems = append(problems, fmt.Sprintf("server %d, watch from %d: %s %s at revision %d comes twice", s.Server, s.From, e.Type, e.Key, e.Revision))
			}
			inStream[e.Key], received[e.Key] = true, true
		}
	}
	return problems
}
