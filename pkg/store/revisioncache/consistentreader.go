// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache

import (
	"context"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"

	"github.com/sandlot-io/sandlot/pkg/store/watchcache"
)

// completeTimeout is how long a read waits for the cache to have all of a revision
// before it is made from etcd instead.
const completeTimeout = 3 * time.Second

// consistentReader is the storage above the watch cache.
type consistentReader struct {
	storage.Interface
	raw     storage.Interface
	source  *source
	checker *watchcache.Checker
}

// Get implements storage.Interface. What is asked for at a revision comes from a
// cache that has the whole of it.
func (s *consistentReader) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	from, err := s.cacheAt(ctx, opts.ResourceVersion)
	if err != nil {
		return err
	}
	return from.Get(ctx, key, opts, out)
}

// GetList implements storage.Interface. A list as of now, or at a revision, comes
// from a cache that has the whole of what there was when the list began. It may
// still show a part of what comes in meanwhile; a watch that continues from there
// brings the rest.
func (s *consistentReader) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	cached := opts
	if opts.ResourceVersion == "" && opts.ResourceVersionMatch == "" && opts.Predicate.Continue == "" && delegator.ConsistentReadSupported() {
		now, err := s.GetCurrentResourceVersion(ctx)
		if err != nil {
			return err
		}
		cached.ResourceVersion = strconv.FormatUint(now, 10)
		cached.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	from, err := s.cacheAt(ctx, cached.ResourceVersion)
	if err != nil {
		return err
	}
	if from == s.raw {
		return s.raw.GetList(ctx, key, opts, list)
	}
	return from.GetList(ctx, key, cached, list)
}

// cacheAt returns the cache once it has the whole of a version, or etcd if that
// takes too long.
func (s *consistentReader) cacheAt(ctx context.Context, version string) (storage.Interface, error) {
	revision, err := s.Versioner().ParseResourceVersion(version)
	if err != nil || revision == 0 || s.source.isComplete(revision) || s.ReadinessCheck() != nil {
		return s.Interface, nil
	}
	waiting, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	if err := s.source.wait(waiting, revision); err != nil {
		return s.raw, ctx.Err()
	}
	return s.Interface, nil
}

// Watch implements storage.Interface. A watch begins between two revisions: the
// cache drops what comes at the revision that a watch began at. It sends the
// revision that it continues from again, unless that changed one object only.
func (s *consistentReader) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	from, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return s.Interface.Watch(ctx, key, opts)
	}
	switch {
	case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
		// The cache waits until it has that version, for which it must not be kept
		// from taking events in.
		if opts.ResourceVersion == "" {
			if from, err = s.GetCurrentResourceVersion(ctx); err != nil {
				return nil, err
			}
			opts.ResourceVersion = strconv.FormatUint(from, 10)
		}
		if cache, err := s.cacheAt(ctx, opts.ResourceVersion); err != nil || cache == s.raw {
			return s.raw.Watch(ctx, key, opts)
		}
	case from != 0 && !s.source.isSingle(from):
		return s.watchWith(ctx, key, opts, from)
	}
	return s.watchBetween(ctx, key, opts)
}

// watchBetween begins a watch between two revisions.
func (s *consistentReader) watchBetween(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.source.boundary.RLock()
	defer s.source.boundary.RUnlock()
	return s.Interface.Watch(ctx, key, opts)
}

// watchWith begins a watch with the events of the revision that it continues from.
func (s *consistentReader) watchWith(ctx context.Context, key string, opts storage.ListOptions, from uint64) (watch.Interface, error) {
	earlier := opts
	earlier.ResourceVersion = strconv.FormatUint(from-1, 10)
	w, tooOld, err := s.probe(ctx, key, earlier)
	if err != nil || !tooOld || s.CompactRevision() >= int64(from) {
		return w, err
	}
	// The cache's history may begin right behind the revision asked for, as it does
	// after a list at that revision. Then etcd has the events.
	w.Stop()
	w, tooOld, err = s.probe(ctx, key, opts)
	if err != nil || tooOld {
		return w, err
	}
	w.Stop()
	return s.raw.Watch(ctx, key, earlier)
}

// probe begins a watch, and reports whether the cache refuses it as too old, which
// the cache does at once.
func (s *consistentReader) probe(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, bool, error) {
	w, err := s.watchBetween(ctx, key, opts)
	if err != nil {
		return nil, false, err
	}
	select {
	case event, ok := <-w.ResultChan():
		return newResumed(w, event, ok), ok && isTooOld(event), nil
	default:
		return w, false, nil
	}
}

func isTooOld(event watch.Event) bool {
	if event.Type != watch.Error {
		return false
	}
	err := apierrors.FromObject(event.Object)
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// resumed is a watch with an event in front again that was taken from it.
type resumed struct {
	watch.Interface
	out  chan watch.Event
	done chan struct{}
	stop sync.Once
}

// newResumed returns the watch w with its first event. ok is false where w had
// ended instead.
func newResumed(w watch.Interface, first watch.Event, ok bool) watch.Interface {
	r := &resumed{Interface: w, out: make(chan watch.Event, 1), done: make(chan struct{})}
	if ok {
		r.out <- first
	}
	go r.run()
	return r
}

// ResultChan implements watch.Interface.
func (r *resumed) ResultChan() <-chan watch.Event { return r.out }

// Stop implements watch.Interface.
func (r *resumed) Stop() {
	r.stop.Do(func() { close(r.done) })
	r.Interface.Stop()
}

// run ends when the watch within ends, which Stop sees to.
func (r *resumed) run() {
	defer close(r.out)
	for event := range r.Interface.ResultChan() {
		select {
		case r.out <- event:
		case <-r.done:
			return
		}
	}
}
