// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// lowEvery is how often a request of low priority is taken while others wait: each one of so many.
const lowEvery = 4

// fairQueue is a work queue in which namespaces take turns, so that one with many requests does not
// delay those of others. Requests of low priority, which are those of objects that a program finds
// when it starts, wait for the others; each lowEvery-th request that is taken is one of them.
type fairQueue[R comparable] struct {
	workqueue.TypedRateLimitingInterface[R]
	storage *fairStorage[R]
}

var _ priorityqueue.PriorityQueue[int] = &fairQueue[int]{}

// newFairQueue returns a queue with the metrics of a controller.
func newFairQueue[R comparable](name string, limiter workqueue.TypedRateLimiter[R], namespaceOf func(R) string) *fairQueue[R] {
	storage := &fairStorage[R]{namespaceOf: namespaceOf, adding: map[R]struct{}{}, isLow: map[R]struct{}{}}
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[R]{Name: name, Queue: storage})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[R]{Name: name, Queue: ready})
	return &fairQueue[R]{
		workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[R]{Name: name, DelayingQueue: delaying}),
		storage,
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue. The priority of a request that is added after
// a time does not count.
func (q *fairQueue[R]) AddWithOpts(o priorityqueue.AddOpts, requests ...R) {
	for _, request := range requests {
		switch {
		case o.RateLimited:
			q.AddRateLimited(request)
		case o.After > 0:
			q.AddAfter(request, o.After)
		case o.Priority != nil && *o.Priority < 0:
			q.storage.addLow(request)
			q.Add(request)
			q.storage.takeLow(request) // is still there if the request is being worked on
		default:
			q.Add(request)
		}
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue. All requests have the same priority when
// they are added again. After a shutdown no request is handed out that still waits.
func (q *fairQueue[R]) GetWithPriority() (request R, priority int, shutdown bool) {
	request, shutdown = q.Get()
	if !shutdown && q.ShuttingDown() {
		q.Done(request)
		return request, 0, true
	}
	return request, 0, shutdown
}

// fairStorage holds the requests that are ready. Its methods but addLow are called under the lock
// of the queue.
type fairStorage[R comparable] struct {
	namespaceOf func(R) string
	others, low turns[R]
	// isLow are the requests that wait in low. One that is no more in it waits in others.
	isLow map[R]struct{}
	// popped counts requests up to lowEvery.
	popped int

	mu sync.Mutex
	// adding are requests that are being added with low priority.
	adding map[R]struct{}
}

func (s *fairStorage[R]) addLow(request R) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adding[request] = struct{}{}
}

// takeLow reports whether a request that is being added has low priority, and forgets that it is
// being added.
func (s *fairStorage[R]) takeLow(request R) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, low := s.adding[request]
	delete(s.adding, request)
	return low
}

// Push implements workqueue.Queue.
func (s *fairStorage[R]) Push(request R) {
	if s.takeLow(request) {
		s.isLow[request] = struct{}{}
		s.low.push(s.namespaceOf(request), request)
		return
	}
	s.others.push(s.namespaceOf(request), request)
}

// Touch implements workqueue.Queue. A request that waits with low priority loses that.
func (s *fairStorage[R]) Touch(request R) {
	if _, low := s.isLow[request]; s.takeLow(request) || !low {
		return
	}
	s.leaveLow(request)
	s.others.push(s.namespaceOf(request), request)
}

// leaveLow notes that a request does not wait with low priority any more.
func (s *fairStorage[R]) leaveLow(request R) {
	if delete(s.isLow, request); len(s.isLow) == 0 {
		s.low = turns[R]{} // which may have requests that wait in others
	}
}

// Len implements workqueue.Queue.
func (s *fairStorage[R]) Len() int { return s.others.len + len(s.isLow) }

// Pop implements workqueue.Queue. There is a request.
func (s *fairStorage[R]) Pop() R {
	s.popped = (s.popped + 1) % lowEvery
	if len(s.isLow) > 0 && (s.popped == 0 || s.others.len == 0) {
		for {
			request := s.low.pop()
			if _, waits := s.isLow[request]; waits {
				s.leaveLow(request)
				return request
			}
		}
	}
	return s.others.pop()
}

// turns are requests by namespace. The zero value is empty.
type turns[R comparable] struct {
	byNamespace map[string][]R
	// next are the namespaces that have requests, in the order of their turns.
	next []string
	len  int
}

func (t *turns[R]) push(namespace string, request R) {
	if t.byNamespace == nil {
		t.byNamespace = map[string][]R{}
	}
	if len(t.byNamespace[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.byNamespace[namespace] = append(t.byNamespace[namespace], request)
	t.len++
}

// pop takes the first request of the namespace whose turn it is. There is one.
func (t *turns[R]) pop() R {
	namespace := t.next[0]
	t.next = t.next[1:]
	waiting := t.byNamespace[namespace]
	request := waiting[0]
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(t.byNamespace, namespace)
	} else {
		t.byNamespace[namespace] = waiting
		t.next = append(t.next, namespace)
	}
	t.len--
	return request
}
