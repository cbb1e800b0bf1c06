// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package txnstorage

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

// intake is the watch that feeds the cache. It keeps the events of a revision
// back until it has all of them, and hands them over under the source's
// boundary:
//
//	etcd's watch       7a 7b          8c          (nothing)  progress 8
//	kept                  7a 7b       8c                     -
//	handed over                       7a 7b, 7                8c, 8
//
// A revision is whole when an event of another one follows, or etcd's word that
// there is none, for which it is asked when nothing follows at once. The cache
// takes in one thing after the other, so when it takes the bookmark behind the
// events it is done with them.
type intake struct {
	source *source
	inner  watch.Interface
	out    chan watch.Event
	done   chan struct{}
	stop   sync.Once

	// initial: these are the objects there are, not events of revisions. newest is
	// the highest revision among them, atNewest how many are at it.
	initial  bool
	newest   uint64
	atNewest int
	kept     []watch.Event
	// asked: etcd was asked how far it is, and has not answered.
	asked bool
}

// ResultChan implements watch.Interface.
func (in *intake) ResultChan() <-chan watch.Event { return in.out }

// Stop implements watch.Interface.
func (in *intake) Stop() {
	in.stop.Do(func() { close(in.done) })
	in.inner.Stop()
}

// run ends when the inner watch does, or with Stop. What is kept then was never
// handed over: the cache goes on from before it.
func (in *intake) run() {
	defer close(in.out)
	again := time.NewTicker(progressEvery)
	defer again.Stop()
	for {
		select {
		case event, ok := <-in.inner.ResultChan():
			if !ok || !in.take(event) {
				return
			}
		case <-again.C:
			in.asked = false
		case <-in.done:
			return
		}
		if len(in.kept) > 0 && !in.asked && len(in.inner.ResultChan()) == 0 {
			in.asked = true
			if err := in.source.ask(in.done); err != nil {
				klog.V(2).InfoS("Asking etcd for the progress of a watch", "err", err)
			}
		}
	}
}

// take takes in one event. It returns false if the watch was stopped.
func (in *intake) take(event watch.Event) bool {
	revision := revisionOf(event)
	switch {
	case event.Type == watch.Bookmark && in.initial:
		in.initial = false
		if revision != in.newest {
			in.atNewest = 0
		}
		in.source.began(revision, in.atNewest)
		return in.send(event)
	case event.Type == watch.Bookmark:
		in.asked = false
		if !in.handOver() || !in.send(event) {
			return false
		}
		in.source.took(revision, 0)
		return true
	case in.initial:
		if revision > in.newest {
			in.newest, in.atNewest = revision, 0
		}
		if revision == in.newest {
			in.atNewest++
		}
		return in.send(event)
	case revision == 0: // an error
		return in.send(event)
	}
	if len(in.kept) > 0 && revisionOf(in.kept[0]) != revision && !in.handOver() {
		return false
	}
	in.kept = append(in.kept, event)
	return true
}

// handOver gives the cache the revision that is kept.
func (in *intake) handOver() bool {
	if len(in.kept) == 0 {
		return true
	}
	revision := revisionOf(in.kept[0])
	end := &metav1.PartialObjectMetadata{}
	end.ResourceVersion = strconv.FormatUint(revision, 10)
	in.source.boundary.Lock()
	defer in.source.boundary.Unlock()
	for _, event := range append(in.kept, watch.Event{Type: watch.Bookmark, Object: end}) {
		if !in.send(event) {
			return false
		}
	}
	in.source.took(revision, len(in.kept))
	in.kept = nil
	return true
}

func (in *intake) send(event watch.Event) bool {
	select {
	case in.out <- event:
		return true
	case <-in.done:
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
