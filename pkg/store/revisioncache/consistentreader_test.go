// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sandlot-io/sandlot/pkg/store/watchcache"
)

// layer is a storage that notes what it is asked.
type layer struct {
	storage.Interface
	asked    []string
	current  uint64
	err      error
	notReady error
	// oldest is the first revision that a watch can continue from.
	oldest    uint64
	compacted int64
}

func (l *layer) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }
func (l *layer) ReadinessCheck() error        { return l.notReady }
func (l *layer) CompactRevision() int64       { return l.compacted }

func (l *layer) GetCurrentResourceVersion(context.Context) (uint64, error) { return l.current, l.err }

func (l *layer) Get(_ context.Context, _ string, opts storage.GetOptions, _ runtime.Object) error {
	l.asked = append(l.asked, "get "+opts.ResourceVersion)
	return nil
}

func (l *layer) GetList(_ context.Context, _ string, opts storage.ListOptions, _ runtime.Object) error {
	l.asked = append(l.asked, "list "+string(opts.ResourceVersionMatch)+" "+opts.ResourceVersion)
	return nil
}

func (l *layer) Watch(_ context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	l.asked = append(l.asked, "watch "+opts.ResourceVersion)
	if from, err := l.Versioner().ParseResourceVersion(opts.ResourceVersion); err == nil && from < l.oldest {
		return tooOld(), l.err
	}
	return watch.NewFake(), l.err
}

// layers are a cache that has all up to revision 10, of which 8 changed several
// objects, above an etcd that does not say how far it is.
func layers() (cached, raw *layer, s *consistentReader) {
	cached, raw = &layer{current: 12}, &layer{}
	fake := newFake()
	fake.askErr = errors.New("no etcd")
	src := newSource(fake)
	src.restarted(5, false)
	src.handedOver(8, 2)
	src.handedOver(10, 1)
	return cached, raw, &consistentReader{Interface: cached, raw: raw, source: src}
}

// What the cache cannot be sure to have comes from etcd.
func TestReadsFallBack(t *testing.T) {
	tests := map[string]struct {
		read        func(context.Context, storage.Interface) error
		change      func(cached *layer)
		cached, raw []string
	}{
		"get any": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.Get(ctx, "/a", storage.GetOptions{ResourceVersion: "0"}, nil)
			},
			cached: []string{"get 0"},
		},
		"get now": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.Get(ctx, "/a", storage.GetOptions{}, nil)
			},
			cached: []string{"get "},
		},
		"get at a revision": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.Get(ctx, "/a", storage.GetOptions{ResourceVersion: "8"}, nil)
			},
			cached: []string{"get 8"},
		},
		"get at a later revision": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.Get(ctx, "/a", storage.GetOptions{ResourceVersion: "11"}, nil)
			},
			raw: []string{"get 11"},
		},
		"get at no revision": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.Get(ctx, "/a", storage.GetOptions{ResourceVersion: "x"}, nil)
			},
			cached: []string{"get x"},
		},
		"list any": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.GetList(ctx, "/a", storage.ListOptions{ResourceVersion: "0"}, nil)
			},
			cached: []string{"list  0"},
		},
		"list at a revision": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.GetList(ctx, "/a", storage.ListOptions{ResourceVersion: "9", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, nil)
			},
			cached: []string{"list Exact 9"},
		},
		"list at a later revision": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.GetList(ctx, "/a", storage.ListOptions{ResourceVersion: "11", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, nil)
			},
			raw: []string{"list Exact 11"},
		},
		"list, cache not ready": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.GetList(ctx, "/a", storage.ListOptions{ResourceVersion: "11"}, nil)
			},
			change: func(cached *layer) { cached.notReady = storage.ErrStorageNotReady },
			cached: []string{"list  11"},
		},
		"next page": {
			read: func(ctx context.Context, s storage.Interface) error {
				return s.GetList(ctx, "/a", storage.ListOptions{Predicate: storage.SelectionPredicate{Continue: "x", Limit: 1}}, nil)
			},
			cached: []string{"list  "},
		},
		"watch with initial events at a later revision": {
			read: func(ctx context.Context, s storage.Interface) error {
				_, err := s.Watch(ctx, "/a", storage.ListOptions{ResourceVersion: "11", SendInitialEvents: new(true)})
				return err
			},
			raw: []string{"watch 11"},
		},
		"watch with initial events as of now": {
			read: func(ctx context.Context, s storage.Interface) error {
				_, err := s.Watch(ctx, "/a", storage.ListOptions{SendInitialEvents: new(true)})
				return err
			},
			raw: []string{"watch 12"},
		},
		"watch with initial events": {
			read: func(ctx context.Context, s storage.Interface) error {
				_, err := s.Watch(ctx, "/a", storage.ListOptions{ResourceVersion: "8", SendInitialEvents: new(true)})
				return err
			},
			cached: []string{"watch 8"},
		},
		"watch": {
			read: func(ctx context.Context, s storage.Interface) error {
				_, err := s.Watch(ctx, "/a", storage.ListOptions{ResourceVersion: "9"})
				return err
			},
			cached: []string{"watch 9"},
		},
		"watch from several": {
			read: func(ctx context.Context, s storage.Interface) error {
				_, err := s.Watch(ctx, "/a", storage.ListOptions{ResourceVersion: "8"})
				return err
			},
			cached: []string{"watch 7"},
		},
		"watch from the future": {
			read: func(ctx context.Context, s storage.Interface) error {
				_, err := s.Watch(ctx, "/a", storage.ListOptions{ResourceVersion: "11"})
				return err
			},
			cached: []string{"watch 10"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cached, raw, s := layers()
			if tc.change != nil {
				tc.change(cached)
			}
			if err := tc.read(t.Context(), s); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.cached, cached.asked); diff != "" {
				t.Errorf("asked of the cache (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.raw, raw.asked); diff != "" {
				t.Errorf("asked of etcd (-want +got):\n%s", diff)
			}
		})
	}
}

// tooOld is a watch that says so, as the cache does.
func tooOld() watch.Interface {
	w := watch.NewFakeWithChanSize(1, false)
	w.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
	return w
}

// The revision that the cache's history begins behind can be sent again from etcd
// only.
func TestWatchFromWhereHistoryBegins(t *testing.T) {
	tests := map[string]struct {
		oldest      uint64 // of the cache
		compacted   int64
		cached, raw []string
		tooOld      bool
	}{
		"long before":    {oldest: 5, cached: []string{"watch 7"}},
		"with it":        {oldest: 7, cached: []string{"watch 7"}},
		"behind it":      {oldest: 8, cached: []string{"watch 7", "watch 8"}, raw: []string{"watch 7"}},
		"but compacted":  {oldest: 8, compacted: 8, cached: []string{"watch 7"}, tooOld: true},
		"long behind it": {oldest: 9, cached: []string{"watch 7", "watch 8"}, tooOld: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cached, raw, s := layers()
			cached.oldest, cached.compacted = tc.oldest, tc.compacted
			w, err := s.Watch(t.Context(), "/a", storage.ListOptions{ResourceVersion: "8"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if diff := cmp.Diff(tc.cached, cached.asked); diff != "" {
				t.Errorf("asked of the cache (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.raw, raw.asked); diff != "" {
				t.Errorf("asked of etcd (-want +got):\n%s", diff)
			}
			if tc.tooOld {
				if event := <-w.ResultChan(); !isTooOld(event) {
					t.Errorf("the client is told %v, want that it is too old", event)
				}
			}
		})
	}
}

// The event that was looked at comes first, and a watch that is stopped need not be
// read to the end.
func TestResumed(t *testing.T) {
	tests := map[string]struct {
		first string // none if the watch had ended
		more  string
		read  int
		stop  bool
		want  string
	}{
		"ended":                        {},
		"an event, then the end":       {first: "7a", want: "7a"},
		"an event and more":            {first: "7a", more: "7b 8c", want: "7a 7b 8c"},
		"stopped before the first":     {first: "7a", more: "7b 8c", stop: true},
		"stopped after the first":      {first: "7a", more: "7b 8c", read: 1, stop: true},
		"stopped with nothing to come": {first: "7a", read: 1, stop: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inner := &fakeWatch{events: make(chan watch.Event, 100), stopped: make(chan struct{})}
			for e := range strings.FieldsSeq(tc.more) {
				inner.events <- parseEvent(t, e)
			}
			var first watch.Event
			if tc.first != "" {
				first = parseEvent(t, tc.first)
			}
			if !tc.stop {
				inner.Stop()
			}
			w := newResumed(inner, first, tc.first != "")
			for range tc.read {
				<-w.ResultChan()
			}
			if tc.stop {
				w.Stop()
				w.Stop()
				all(t, w) // its channel is closed when the goroutine ends
				<-inner.stopped
				return
			}
			if diff := cmp.Diff(tc.want, all(t, w)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

type getter struct {
	options generic.RESTOptions
	err     error
}

func (g getter) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return g.options, g.err
}

// Only what has a watch cache is mended.
func TestOptions(t *testing.T) {
	broken := errors.New("no options")
	tests := map[string]struct {
		getter getter
		mended bool
		err    error
	}{
		"cached":   {getter: getter{options: generic.RESTOptions{Decorator: genericregistry.StorageWithCacher()}}, mended: true},
		"uncached": {getter: getter{options: generic.RESTOptions{Decorator: generic.UndecoratedStorage}}},
		"error":    {getter: getter{err: broken}, err: broken},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			options, err := Options(tc.getter).GetRESTOptions(schema.GroupResource{Resource: "a"}, nil)
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v", err)
			}
			if tc.err == nil && watchcache.IsUncached(options.Decorator) == tc.mended {
				t.Errorf("is mended: %t, want %t", !tc.mended, tc.mended)
			}
		})
	}
}
