// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/pkg/controllers/queue"
)

type requests = priorityqueue.PriorityQueue[reconcile.Request]

func newQueue(t *testing.T) requests {
	t.Helper()
	o := queue.Options(1)
	q, ok := o.NewQueue("test", o.RateLimiter).(requests)
	if !ok {
		t.Fatal("requests have no priority")
	}
	t.Cleanup(q.ShutDown)
	return q
}

// of returns the request for an object that is written namespace/name.
func of(object string) reconcile.Request {
	namespace, name, _ := strings.Cut(object, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// taken returns the next n requests, each of which is done at once.
func taken(q requests, n int) (names []string) {
	for range n {
		request, _, _ := q.GetWithPriority()
		names = append(names, request.String())
		q.Done(request)
	}
	return names
}

// TestNamespacesTakeTurns: a namespace with many requests delays others by one request at a time.
func TestNamespacesTakeTurns(t *testing.T) {
	q := newQueue(t)
	for i := range 1000 {
		q.Add(of(fmt.Sprintf("noisy/%d", i)))
	}
	q.Add(of("quiet/a"))
	q.Add(of("quiet/b"))
	q.Add(of("other/a"))
	q.Add(of("quiet/a"))
	want := []string{"noisy/0", "quiet/a", "other/a", "noisy/1", "quiet/b", "noisy/2", "noisy/3"}
	if got := taken(q, len(want)); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	if q.Len() != 1000-4 {
		t.Errorf("%d requests wait", q.Len())
	}
	q.Add(of("quiet/a"))
	if got := taken(q, 2); !slices.Contains(got, "quiet/a") {
		t.Errorf("one that came later is not among %v", got)
	}
}

// TestLowPriority: objects that are found at the start wait for what happens to others, and not for
// ever.
func TestLowPriority(t *testing.T) {
	q := newQueue(t)
	low := priorityqueue.AddOpts{Priority: new(-100)}
	for i := range 10 {
		q.AddWithOpts(low, of(fmt.Sprintf("a/start%d", i)))
	}
	q.AddWithOpts(low, of("b/start"), of("b/changed"))
	for i := range 6 {
		q.Add(of(fmt.Sprintf("a/%d", i)))
	}
	q.AddWithOpts(priorityqueue.AddOpts{}, of("b/changed")) // has waited with low priority until now
	if q.Len() != 18 {
		t.Errorf("%d requests wait", q.Len())
	}
	want := []string{"a/0", "b/changed", "a/1", "a/start0", "a/2", "a/3", "a/4", "b/start", "a/5", "a/start1"}
	if got := taken(q, len(want)); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	if got := taken(q, q.Len()); len(got) != 8 || slices.Contains(got, "b/changed") {
		t.Errorf("the rest is %v", got)
	}
}

// TestLowPriorityOfOneThatIsWorkedOn: a request that is found anew while a worker has it comes back
// as one that has changed.
func TestLowPriorityOfOneThatIsWorkedOn(t *testing.T) {
	q := newQueue(t)
	q.Add(of("a/changed"))
	request, _, _ := q.GetWithPriority()
	q.Add(request)
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100)}, request, of("a/start"))
	q.Done(request)
	if got := taken(q, 2); !slices.Equal(got, []string{"a/changed", "a/start"}) {
		t.Errorf("the order is %v", got)
	}
}

// TestShutDown: what waits when a program stops is not worked on.
func TestShutDown(t *testing.T) {
	q := newQueue(t)
	q.Add(of("a/1"))
	q.Add(of("a/2"))
	q.ShutDown()
	if request, _, shutdown := q.GetWithPriority(); !shutdown {
		t.Errorf("%s is worked on", request)
	}
}

// TestLaterRequests: requests come back after a time, and after failures.
func TestLaterRequests(t *testing.T) {
	q := newQueue(t)
	q.AddWithOpts(priorityqueue.AddOpts{After: time.Millisecond}, of("a/after"))
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, Priority: new(-100)}, of("a/failed"))
	got := taken(q, 2)
	if slices.Sort(got); !slices.Equal(got, []string{"a/after", "a/failed"}) || q.NumRequeues(of("a/failed")) != 1 {
		t.Errorf("got %v, %d times again", got, q.NumRequeues(of("a/failed")))
	}
}

// TestRequestsOfManyWorkers: nothing is lost or taken twice while workers and events continue.
func TestRequestsOfManyWorkers(t *testing.T) {
	q := newQueue(t)
	const namespaces, names = 20, 50
	var adders, workers sync.WaitGroup
	var mu sync.Mutex
	working, seen := map[reconcile.Request]bool{}, map[reconcile.Request]bool{}
	for range 4 {
		workers.Go(func() {
			for {
				request, shutdown := q.Get()
				if shutdown {
					return
				}
				mu.Lock()
				if working[request] {
					t.Errorf("%s is taken twice", request)
				}
				working[request], seen[request] = true, true
				mu.Unlock()
				mu.Lock()
				delete(working, request)
				mu.Unlock()
				q.Done(request)
			}
		})
	}
	for i := range namespaces {
		adders.Go(func() {
			for j := range names {
				request := of(fmt.Sprintf("%d/%d", i, j))
				q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100 * (j % 2))}, request)
				q.Add(request)
			}
		})
	}
	adders.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	if len(seen) != namespaces*names || q.Len() != 0 {
		t.Errorf("%d of %d requests were taken, %d are left", len(seen), namespaces*names, q.Len())
	}
}
