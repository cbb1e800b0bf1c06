// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// maxMultiple is how many revisions that changed several objects are remembered;
// about the reach of the watch cache's own history.
const maxMultiple = 4096

// progressInterval is how often etcd is asked again how far its watch is.
const progressInterval = 100 * time.Millisecond

// source is the storage below the watch cache. It hands the cache whole revisions
// (see eventBatcher), and remembers which of them changed several objects.
type source struct {
	storage.Interface

	// boundary is held while a revision is handed to the cache, and shared by reads
	// that must not meet the cache in the middle of one. It is taken before mu.
	boundary sync.RWMutex

	mu sync.Mutex
	// complete is the highest revision of which the cache has everything.
	complete uint64
	// multiple are revisions that changed, or may have changed, several objects, the
	// oldest first. What was before known is not remembered.
	multiple []uint64
	known    uint64
	// changed is closed, and replaced, whenever complete grows.
	changed chan struct{}
	// watchMetadata tells etcd which watch a request for progress is about.
	watchMetadata metadata.MD
}

func newSource(raw storage.Interface) *source {
	return &source{Interface: raw, changed: make(chan struct{})}
}

// Watch implements storage.Interface. What the cache's own watch brings comes
// in whole revisions.
func (s *source) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if !opts.ProgressNotify || !opts.Recursive {
		return s.Interface.Watch(ctx, key, opts)
	}
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	s.watching(ctx, opts)
	b := &eventBatcher{
		source:  s,
		inner:   inner,
		out:     make(chan watch.Event),
		done:    make(chan struct{}),
		initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
	}
	go b.run()
	return b, nil
}

// watching notes where a watch continues from. If that is not where the last one
// ended, the cache has listed anew, and how many objects changed at the revision of
// that list is not known.
func (s *source) watching(ctx context.Context, opts storage.ListOptions) {
	from, err := storage.APIObjectVersioner{}.ParseResourceVersion(opts.ResourceVersion)
	s.mu.Lock()
	defer s.mu.Unlock()
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		s.watchMetadata = md
	}
	if err == nil && from > s.complete {
		s.restart(from, true)
	}
}

// restarted notes that the cache has everything that there was at a revision, which
// may have changed several objects.
func (s *source) restarted(revision uint64, multiple bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(revision, multiple)
}

func (s *source) restart(revision uint64, multiple bool) {
	s.multiple, s.known = nil, revision
	if multiple {
		s.multiple = []uint64{revision}
	}
	s.advance(revision)
}

// handedOver notes that the cache has the whole of a revision, which brought a number
// of events.
func (s *source) handedOver(revision uint64, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if events > 1 {
		s.multiple = append(s.multiple, revision)
		if len(s.multiple) > maxMultiple {
			s.known = s.multiple[0] + 1
			s.multiple = s.multiple[1:]
		}
	}
	s.advance(revision)
}

func (s *source) advance(revision uint64) {
	if revision > s.complete {
		s.complete = revision
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// isSingle reports whether it is certain that a revision changed one object at most.
func (s *source) isSingle(revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.complete || revision < s.known {
		return false
	}
	for i := len(s.multiple) - 1; i >= 0 && s.multiple[i] >= revision; i-- {
		if s.multiple[i] == revision {
			return false
		}
	}
	return true
}

// isComplete reports whether the cache has the whole of a revision.
func (s *source) isComplete(revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete >= revision
}

// wait returns when the cache has the whole of a revision.
func (s *source) wait(ctx context.Context, revision uint64) error {
	for {
		s.mu.Lock()
		done, changed := s.complete >= revision, s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		if err := s.requestProgress(ctx.Done()); err != nil {
			return err
		}
		retry := time.NewTimer(progressInterval)
		select {
		case <-changed:
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return ctx.Err()
		}
		retry.Stop()
	}
}

// requestProgress has etcd tell the cache's watch how far that is. It gives up when
// done is closed: a client that has lost its etcd would wait for it.
func (s *source) requestProgress(done <-chan struct{}) error {
	s.mu.Lock()
	md := s.watchMetadata
	s.mu.Unlock()
	// Nothing of the caller's context but its end: the stream may outlive it.
	return s.RequestWatchProgress(metadata.NewOutgoingContext(wait.ContextForChannel(done), md))
}
