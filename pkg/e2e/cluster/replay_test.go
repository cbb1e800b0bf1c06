// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// recording is what happened to the sandboxes of a namespace, in the order of the
// store.
type recording struct {
	c         *clients
	namespace string
	before    []v1alpha1.Sandbox
	stop      context.CancelFunc
	events    chan []watch.Event
}

// record begins to write down what happens to the sandboxes of a namespace.
func (c *clients) record(t testing.TB, namespace string) *recording {
	t.Helper()
	list, err := c.Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Sandboxes(namespace).Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{c: c, namespace: namespace, before: list.Items, stop: stop, events: make(chan []watch.Event, 1)}
	go func() {
		var all []watch.Event
		for e := range w.ResultChan() {
			all = append(all, e)
			if sandbox, ok := e.Object.(*v1alpha1.Sandbox); ok && sandbox.Name == lastRecorded {
				break
			}
		}
		r.events <- all
	}()
	return r
}

// lastRecorded is the name of a sandbox that ends a recording.
const lastRecorded = "end-of-the-recording"

// end returns all that has happened until now.
func (r *recording) end(t testing.TB) []watch.Event {
	t.Helper()
	defer r.stop()
	r.c.makeSandbox(t, r.namespace, lastRecorded, smallTemplate)
	select {
	case all := <-r.events:
		return all
	case <-time.After(expect.Patience):
		t.Fatal("the recording does not end")
		return nil
	}
}

// seen is a sandbox as an event left it.
type seen struct {
	revision          string
	pooled, available bool
	claimed           bool
	// since is how many claims there had been when it became available.
	since int
}

func look(e watch.Event) seen {
	sandbox := e.Object.(*v1alpha1.Sandbox)
	s := seen{revision: sandbox.Labels[v1alpha1.LabelTemplateHash]}
	if e.Type == watch.Deleted || sandbox.DeletionTimestamp != nil {
		return s
	}
	s.pooled = v1alpha1.IsInPool(sandbox)
	s.claimed = !s.pooled && sandbox.Labels[v1alpha1.LabelSandboxClaimed] == v1alpha1.ClaimedTrue
	state := v1alpha1.StateOf(sandbox, time.Now())
	s.available = state == v1alpha1.StateAvailable && sandbox.Status.PodInfo.PodIP != "" &&
		sandbox.Annotations[v1alpha1.AnnotationLock] == ""
	return s
}

// taken is a claim of a sandbox of a pool.
type taken struct {
	name, revision string
	// newer is the longest for which a sandbox of the newest revision had been
	// available, in claims, or -1 with none.
	newer int
	// stock is how many of those were available, and waiting the name of the one that
	// had been for longest.
	stock   int
	waiting string
}

// removed is the deletion of an available sandbox of a pool.
type removed struct {
	name, revision string
	// left are the available sandboxes after it.
	left int
}

// story is what a recording says about a pool.
type story struct {
	taken   []taken
	removed []removed
	// oldLeft is how many sandboxes in the pool are of another revision in the end.
	oldLeft int
}

// tell replays a recording. newest is the revision that a roll-out leads to.
func (r *recording) tell(t testing.TB, events []watch.Event, newest string) story {
	t.Helper()
	var s story
	now := map[string]seen{}
	for i := range r.before {
		now[r.before[i].Name] = look(watch.Event{Type: watch.Added, Object: &r.before[i]})
	}
	version := ""
	for _, e := range events {
		sandbox, ok := e.Object.(*v1alpha1.Sandbox)
		if !ok {
			t.Fatalf("an event of the watch: %+v", e)
		}
		if version != "" {
			// Several sandboxes change in one transaction, and with it come again.
			if order, err := resourceversion.CompareResourceVersion(version, sandbox.ResourceVersion); err != nil || order > 0 {
				t.Fatalf("%s after %s: %v", sandbox.ResourceVersion, version, err)
			}
		}
		version = sandbox.ResourceVersion
		before, is := now[sandbox.Name], look(e)
		is.since = before.since
		if is.available && !before.available {
			is.since = len(s.taken)
		}
		if now[sandbox.Name] = is; e.Type == watch.Deleted {
			delete(now, sandbox.Name)
		}
		switch {
		case before.pooled && is.claimed:
			claim := taken{name: sandbox.Name, revision: is.revision, newer: -1}
			for name, other := range now {
				if !other.available || other.revision != newest {
					continue
				}
				claim.stock++
				if age := len(s.taken) - other.since; age > claim.newer {
					claim.newer, claim.waiting = age, name
				}
			}
			s.taken = append(s.taken, claim)
		case before.available && !is.available && !is.pooled:
			left := 0
			for _, other := range now {
				if other.available {
					left++
				}
			}
			s.removed = append(s.removed, removed{sandbox.Name, before.revision, left})
		}
	}
	for _, is := range now {
		if is.pooled && is.revision != newest {
			s.oldLeft++
		}
	}
	return s
}

func (r removed) String() string {
	return fmt.Sprintf("%s of revision %s, which left %d", r.name, r.revision, r.left)
}
