// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package txnstorage

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// rememberedRevisions is how many revisions that changed several objects are
// remembered; about the reach of the watch cache's own history.
const rememberedRevisions = 4096

// progressEvery is how often etcd is asked again to say how far its watch is.
const progressEvery = 100 * time.Millisecond

// source is the storage below the watch cache. It hands the cache whole
// revisions: see intake.
type source struct {
	storage.Interface

	// boundary is held while a revision is handed to the cache, and shared by who
	// must not meet the cache in the middle of one. It is taken before mu.
	boundary sync.RWMutex

	mu sync.Mutex
	// whole is the highest revision of which the cache has everything.
	whole uint64
	// several are revisions that have, or may have, more than one event, the oldest
	// first; known is where this knowledge begins.
	several []uint64
	known   uint64
	// changed is closed, and replaced, whenever whole grows.
	changed chan struct{}
	// asker tells etcd of which watch it is asked.
	asker metadata.MD
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
	s.begin(ctx, opts)
	in := &intake{
		source:  s,
		inner:   inner,
		out:     make(chan watch.Event),
		done:    make(chan struct{}),
		initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
	}
	go in.run()
	return in, nil
}

// begin takes in where a watch goes on from. If that is not where the last one
// ended, the cache has listed anew, and how many objects changed at the revision of
// that list is not known.
func (s *source) begin(ctx context.Context, opts storage.ListOptions) {
	from, err := storage.APIObjectVersioner{}.ParseResourceVersion(opts.ResourceVersion)
	s.mu.Lock()
	defer s.mu.Unlock()
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		s.asker = md
	}
	if err == nil && from > s.whole {
		s.restart(from, true)
	}
}

// began notes that the cache has everything that was listed at a revision, and
// how many of the objects are of that very revision.
func (s *source) began(revision uint64, objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(revision, objects > 1)
}

// restart begins anew at a revision, which may have more than one event.
func (s *source) restart(revision uint64, several bool) {
	s.several, s.known = nil, revision
	if several {
		s.several = []uint64{revision}
	}
	s.grow(revision)
}

// took notes that the cache has the whole of a revision, which brought a number
// of events.
func (s *source) took(revision uint64, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if events > 1 {
		s.several = append(s.several, revision)
		if len(s.several) > rememberedRevisions {
			s.known = s.several[0] + 1
			s.several = s.several[1:]
		}
	}
	s.grow(revision)
}

func (s *source) grow(revision uint64) {
	if revision > s.whole {
		s.whole = revision
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// single says whether it is certain that a revision changed one object at most.
func (s *source) single(revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > s.whole || revision < s.known {
		return false
	}
	for i := len(s.several) - 1; i >= 0 && s.several[i] >= revision; i-- {
		if s.several[i] == revision {
			return false
		}
	}
	return true
}

// isWhole says whether the cache has the whole of a revision.
func (s *source) isWhole(revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole >= revision
}

// wait returns when the cache has the whole of a revision.
func (s *source) wait(ctx context.Context, revision uint64) error {
	for {
		s.mu.Lock()
		done, changed := s.whole >= revision, s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		if err := s.ask(ctx.Done()); err != nil {
			return err
		}
		again := time.NewTimer(progressEvery)
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
		again.Stop()
	}
}

// ask lets etcd say in the cache's watch how far that is. It gives up when done
// is closed: a client that has lost its etcd would wait for it.
func (s *source) ask(done <-chan struct{}) error {
	s.mu.Lock()
	asker := s.asker
	s.mu.Unlock()
	// Nothing of the caller's context but its end: the stream may outlive it.
	return s.RequestWatchProgress(metadata.NewOutgoingContext(wait.ContextForChannel(done), asker))
}
