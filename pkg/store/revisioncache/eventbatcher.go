// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// eventBatcher is the watch that feeds the cache. It keeps the events of a revision
// back until it has all of them, and hands them over under the source's boundary:
//
//	etcd's watch       7a 7b          8c          (nothing)  progress 8
//	pending               7a 7b       8c                     -
//	handed over                       7a 7b, 7                8c, 8
//
// A revision is complete when an event of another one follows, or etcd's progress
// notification, which is requested when nothing follows at once. The cache takes in
// one thing after the other, so when it takes the bookmark behind the events it is
// done with them.
type eventBatcher struct {
	source *source
	inner  watch.Interface
	out    chan watch.Event
	done   chan struct{}
	stop   sync.Once

	// initial: these are initial events, and not the changes of revisions. newest is
	// the highest revision among them, atNewest how many are at it.
	initial  bool
	newest   uint64
	atNewest int
	pending  []watch.Event
	// requested: progress was requested, and etcd has not answered.
	requested bool
}

// ResultChan implements watch.Interface.
func (b *eventBatcher) ResultChan() <-chan watch.Event { return b.out }

// Stop implements watch.Interface.
func (b *eventBatcher) Stop() {
	b.stop.Do(func() { close(b.done) })
	b.inner.Stop()
}

// run ends when the inner watch does, or with Stop. What is pending then was never
// handed over: the cache continues from before it.
func (b *eventBatcher) run() {
	defer close(b.out)
	retry := time.NewTicker(progressInterval)
	defer retry.Stop()
	for {
		select {
		case event, ok := <-b.inner.ResultChan():
			if !ok || !b.receive(event) {
				return
			}
		case <-retry.C:
			b.requested = false
		case <-b.done:
			return
		}
		if len(b.pending) > 0 && !b.requested && len(b.inner.ResultChan()) == 0 {
			b.requested = true
			if err := b.source.requestProgress(b.done); err != nil {
				klog.V(2).InfoS("Failed to request the progress of a watch from etcd", "err", err)
			}
		}
	}
}

// receive takes in one event. It returns false if the watch was stopped.
func (b *eventBatcher) receive(event watch.Event) bool {
	revision := revisionOf(event)
	switch {
	case event.Type == watch.Bookmark && b.initial:
		b.initial = false
		if revision != b.newest {
			b.atNewest = 0
		}
		b.source.restarted(revision, b.atNewest > 1)
		return b.send(event)
	case event.Type == watch.Bookmark:
		b.requested = false
		if !b.handOver() || !b.send(event) {
			return false
		}
		b.source.handedOver(revision, 0)
		return true
	case b.initial:
		if revision > b.newest {
			b.newest, b.atNewest = revision, 0
		}
		if revision == b.newest {
			b.atNewest++
		}
		return b.send(event)
	case revision == 0: // an error
		return b.send(event)
	}
	if len(b.pending) > 0 && revisionOf(b.pending[0]) != revision && !b.handOver() {
		return false
	}
	b.pending = append(b.pending, event)
	return true
}

// handOver gives the cache the revision that is pending.
func (b *eventBatcher) handOver() bool {
	if len(b.pending) == 0 {
		return true
	}
	revision := revisionOf(b.pending[0])
	end := &metav1.PartialObjectMetadata{}
	end.ResourceVersion = strconv.FormatUint(revision, 10)
	b.source.boundary.Lock()
	defer b.source.boundary.Unlock()
	for _, event := range append(b.pending, watch.Event{Type: watch.Bookmark, Object: end}) {
		if !b.send(event) {
			return false
		}
	}
	b.source.handedOver(revision, len(b.pending))
	b.pending = nil
	return true
}

func (b *eventBatcher) send(event watch.Event) bool {
	select {
	case b.out <- event:
		return true
	case <-b.done:
		return false
	}
}

// revisionOf returns 0 for what is no object at a revision: an error.
func revisionOf(event watch.Event) uint64 {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return 0
	}
	revision, err := storage.APIObjectVersioner{}.ParseResourceVersion(object.GetResourceVersion())
	if err != nil {
		return 0
	}
	return revision
}
