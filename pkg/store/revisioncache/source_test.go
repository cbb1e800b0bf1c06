// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// patience ends a test that would otherwise wait for ever.
const patience = 2 * time.Minute

// fakeStorage is what etcd would be: a test makes its watches send.
type fakeStorage struct {
	storage.Interface

	mu sync.Mutex
	// watches are what was asked for, in order; the last one is fed by the test.
	watches []storage.ListOptions
	fed     *fakeWatch
	err     error
	// asked receives the context of each request for progress; askErr answers them.
	asked  chan context.Context
	askErr error
}

func newFake() *fakeStorage { return &fakeStorage{asked: make(chan context.Context, 100)} }

func (f *fakeStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (f *fakeStorage) Watch(_ context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.watches = append(f.watches, opts)
	f.fed = &fakeWatch{events: make(chan watch.Event, 100), stopped: make(chan struct{})}
	return f.fed, nil
}

func (f *fakeStorage) RequestWatchProgress(ctx context.Context) error {
	select {
	case f.asked <- ctx:
	default:
	}
	return f.askErr
}

// fakeWatch is like etcd's: once stopped it ends.
type fakeWatch struct {
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (w *fakeWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *fakeWatch) Stop() { w.once.Do(func() { close(w.stopped); close(w.events) }) }

// events are written as "7a" for object a at revision 7, "7" for etcd's word that
// nothing at 7 or before is to come, and "error".
func parseEvent(t *testing.T, s string) watch.Event {
	t.Helper()
	if s == "error" {
		return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(errors.New("broken")).ErrStatus}
	}
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: s[len(digits):], ResourceVersion: digits}}
	if obj.Name == "" {
		return watch.Event{Type: watch.Bookmark, Object: obj}
	}
	return watch.Event{Type: watch.Modified, Object: obj}
}

func formatEvent(event watch.Event) string {
	obj, ok := event.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return strings.ToLower(string(event.Type))
	}
	return obj.ResourceVersion + obj.Name
}

// cacheOptions are those of the watch that feeds a cache.
func cacheOptions(from string) storage.ListOptions {
	return storage.ListOptions{ResourceVersion: from, Predicate: storage.Everything, Recursive: true, ProgressNotify: true}
}

func mustWatch(t *testing.T, s storage.Interface, options storage.ListOptions) watch.Interface {
	t.Helper()
	w, err := s.Watch(t.Context(), "/a", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// all receives what comes until the watch ends.
func all(t *testing.T, w watch.Interface) string {
	t.Helper()
	var got []string
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return strings.Join(got, " ")
			}
			got = append(got, formatEvent(event))
		case <-timer.C:
			t.Fatalf("the watch does not end after %v", got)
		}
	}
}

func TestEventBatcher(t *testing.T) {
	tests := map[string]struct {
		from    string
		initial bool
		etcd    string // what it sends before its watch ends
		want    string // what the cache gets

		whole   uint64
		single  []uint64
		several []uint64
	}{
		"nothing":                        {from: "5", whole: 5, several: []uint64{4, 5, 6}},
		"one by one":                     {from: "5", etcd: "6a 7b 8a", want: "6a 6 7b 7", whole: 7, single: []uint64{6, 7}, several: []uint64{4, 5, 8}},
		"a revision of several":          {from: "5", etcd: "6a 6b 6c 7a", want: "6a 6b 6c 6", whole: 6, several: []uint64{5, 6, 7}},
		"ends in the middle":             {from: "5", etcd: "6a 6b", want: "", whole: 5, several: []uint64{5, 6}},
		"progress ends a revision":       {from: "5", etcd: "6a 6b 6", want: "6a 6b 6 6", whole: 6, several: []uint64{5, 6}},
		"progress beyond":                {from: "5", etcd: "6a 6b 9", want: "6a 6b 6 9", whole: 9, single: []uint64{7, 8, 9}, several: []uint64{5, 6, 10}},
		"progress alone":                 {from: "5", etcd: "9", want: "9", whole: 9, single: []uint64{6, 9}, several: []uint64{5, 10}},
		"an error":                       {from: "5", etcd: "6a error", want: "error", whole: 5, several: []uint64{5, 6}},
		"an error after a revision":      {from: "5", etcd: "6a 7b error", want: "6a 6 error", whole: 6, single: []uint64{6}, several: []uint64{5, 7}},
		"one object twice":               {from: "5", etcd: "6a 6a 7b", want: "6a 6a 6", whole: 6, several: []uint64{5, 6}},
		"no revision known":              {from: "0", etcd: "6a 6b 7c", want: "6a 6b 6", whole: 6, single: []uint64{5}, several: []uint64{6}},
		"initial events":                 {initial: true, etcd: "8a 3b 8c 5d 9 10a 10b 11c", want: "8a 3b 8c 5d 9 10a 10b 10", whole: 10, single: []uint64{9}, several: []uint64{3, 5, 8, 10}},
		"initial events, unfinished":     {initial: true, etcd: "8a 3b", want: "8a 3b"},
		"initial events of one revision": {initial: true, etcd: "9a 3b 9c 9", want: "9a 3b 9c 9", whole: 9, several: []uint64{3, 9}},
		"initial events, newest last":    {initial: true, etcd: "3a 3b 9c 9", want: "3a 3b 9c 9", whole: 9, single: []uint64{9}, several: []uint64{3}},
		"no initial events":              {initial: true, etcd: "9 10a 11b", want: "9 10a 10", whole: 10, single: []uint64{9, 10}, several: []uint64{8, 11}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			s := newSource(fake)
			options := cacheOptions(tc.from)
			if tc.initial {
				options.SendInitialEvents = new(true)
			}
			w := mustWatch(t, s, options)
			for e := range strings.FieldsSeq(tc.etcd) {
				fake.fed.events <- parseEvent(t, e)
			}
			close(fake.fed.events)
			fake.fed.once.Do(func() { close(fake.fed.stopped) })
			if diff := cmp.Diff(tc.want, all(t, w)); diff != "" {
				t.Errorf("the cache gets (-want +got):\n%s", diff)
			}
			if s.complete != tc.whole || s.isComplete(tc.whole+1) || !s.isComplete(tc.whole) {
				t.Errorf("whole is %d, want %d", s.complete, tc.whole)
			}
			for _, revision := range tc.single {
				if !s.isSingle(revision) {
					t.Errorf("%d is not known as single", revision)
				}
			}
			for _, revision := range tc.several {
				if s.isSingle(revision) {
					t.Errorf("%d is taken as single", revision)
				}
			}
		})
	}
}

// A cache continues from the last thing it got when its watch ends, wherever that
// is, and misses nothing.
func TestCacheGoesOn(t *testing.T) {
	etcd := strings.Fields("6a 7a 7b 7c 9a 10b 10c 12a 13a 13b 14c 15")
	for cut := range len(etcd) + 1 {
		t.Run(strconv.Itoa(cut), func(t *testing.T) {
			fake := newFake()
			s := newSource(fake)
			version := "5"
			known := map[string]string{}
			read := func(cut int) {
				w := mustWatch(t, s, cacheOptions(version))
				from, _ := strconv.Atoi(fake.watches[len(fake.watches)-1].ResourceVersion)
				for _, e := range etcd[:cut] {
					event := parseEvent(t, e)
					if revisionOf(event) > uint64(from) {
						fake.fed.events <- event
					}
				}
				close(fake.fed.events)
				fake.fed.once.Do(func() { close(fake.fed.stopped) })
				for got := range strings.FieldsSeq(all(t, w)) {
					version = strings.TrimRight(got, "abc")
					known[got[len(version):]] = version
				}
			}
			read(cut)
			if cut > 0 && version != "5" {
				if v, _ := strconv.ParseUint(version, 10, 64); !s.isComplete(v) {
					t.Errorf("after %q the cache continues from %s, of which it has not all", etcd[cut-1], version)
				}
			}
			read(len(etcd))
			want := map[string]string{"": "15", "a": "13", "b": "13", "c": "14"}
			if diff := cmp.Diff(want, known); diff != "" {
				t.Errorf("known (-want +got):\n%s", diff)
			}
			if got := fake.watches[0].ResourceVersion; got != "5" {
				t.Errorf("asks etcd for events since %s, want 5", got)
			}
		})
	}
}

// No read may begin while the cache has a part of a revision, and the last event of
// one is taken in when the boundary is free again.
func TestBoundary(t *testing.T) {
	fake := newFake()
	s := newSource(fake)
	w := mustWatch(t, s, cacheOptions("5"))
	free := func() bool {
		if s.boundary.TryRLock() {
			s.boundary.RUnlock()
			return true
		}
		return false
	}
	for _, e := range []string{"6a", "6b", "6"} {
		fake.fed.events <- parseEvent(t, e)
	}
	for _, want := range []string{"6a", "6b"} {
		if got := formatEvent(<-w.ResultChan()); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if free() || s.isComplete(6) {
			t.Errorf("after %s the revision counts as whole", want)
		}
	}
	<-w.ResultChan() // the bookmark behind the events
	<-w.ResultChan() // etcd's
	if !free() || !s.isComplete(6) {
		t.Error("the revision does not count as whole")
	}
}

// etcd is asked for the end of a revision once, and again when it keeps silent.
func TestEventBatcherRequestsProgress(t *testing.T) {
	fake := newFake()
	s := newSource(fake)
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("source", "cache"))
	w, err := s.Watch(ctx, "/a", cacheOptions("5"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	fake.fed.events <- parseEvent(t, "6a")
	for range 2 {
		asked := <-fake.asked
		if md, _ := metadata.FromOutgoingContext(asked); len(md["source"]) != 1 {
			t.Errorf("asks of another watch: %v", md)
		}
	}
	fake.fed.events <- parseEvent(t, "6")
	for _, want := range []string{"6a", "6", "6"} {
		if got := formatEvent(<-w.ResultChan()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestOtherWatchesPass(t *testing.T) {
	tests := map[string]storage.ListOptions{
		"not a cache's": {ResourceVersion: "5", Recursive: true},
		"of one object": {ResourceVersion: "5", ProgressNotify: true},
	}
	for name, options := range tests {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			if w := mustWatch(t, newSource(fake), options); w != fake.fed {
				t.Errorf("got a %T", w)
			}
		})
	}
	t.Run("fails", func(t *testing.T) {
		fake := newFake()
		fake.err = errors.New("no etcd")
		if _, err := newSource(fake).Watch(t.Context(), "/a", cacheOptions("5")); !errors.Is(err, fake.err) {
			t.Errorf("got %v", err)
		}
	})
}

// A watch that is stopped need not be read to the end.
func TestEventBatcherStops(t *testing.T) {
	tests := map[string]struct {
		etcd string
		read int
	}{
		"nothing came":             {"", 0},
		"an event is kept":         {"6a", 0},
		"a revision waits":         {"6a 6b 7c", 0},
		"in the middle of one":     {"6a 6b 6c 7d", 1},
		"the bookmark is not read": {"6a 7b", 1},
		"a bookmark waits":         {"6", 0},
		"an error waits":           {"error", 0},
		"more is to come":          {"6a 7a 8a 9a 10a 11a", 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			s := newSource(fake)
			w := mustWatch(t, s, cacheOptions("5"))
			for e := range strings.FieldsSeq(tc.etcd) {
				fake.fed.events <- parseEvent(t, e)
			}
			for range tc.read {
				<-w.ResultChan()
			}
			w.Stop()
			w.Stop()
			all(t, w) // its channel is closed when the goroutine ends
			<-fake.fed.stopped
			if !s.boundary.TryLock() {
				t.Error("the boundary is held for ever")
			}
		})
	}
}

func TestWait(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	tests := map[string]struct {
		ctx    context.Context
		askErr error
		etcd   string
		want   error
	}{
		"is there":    {ctx: ended, etcd: "7a 8"},
		"comes":       {ctx: t.Context(), etcd: "8"},
		"cannot ask":  {ctx: t.Context(), askErr: errors.ErrUnsupported, want: errors.ErrUnsupported},
		"has no time": {ctx: ended, want: context.Canceled},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			fake.askErr = tc.askErr
			s := newSource(fake)
			w := mustWatch(t, s, cacheOptions("5"))
			done := make(chan error, 1)
			if tc.ctx.Err() == nil {
				go func() { done <- s.wait(tc.ctx, 8) }()
				<-fake.asked
			}
			for e := range strings.FieldsSeq(tc.etcd) {
				fake.fed.events <- parseEvent(t, e)
			}
			if tc.etcd != "" {
				for e := range w.ResultChan() {
					if formatEvent(e) == "8" {
						break
					}
				}
				w.Stop()
				all(t, w)
			}
			if tc.ctx.Err() != nil {
				done <- s.wait(tc.ctx, 8)
			}
			if err := <-done; !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// A request for progress ends with who waits for it, not with etcd's answer.
func TestRequestProgressEnds(t *testing.T) {
	fake := newFake()
	s := newSource(fake)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = s.wait(ctx, 8) }()
	asked := <-fake.asked
	if asked.Err() != nil {
		t.Errorf("the request has ended: %v", asked.Err())
	}
	cancel()
	<-asked.Done()
}

func TestMultipleRevisions(t *testing.T) {
	s := newSource(newFake())
	s.handedOver(1, 1)
	for i := range maxMultiple + 10 {
		s.handedOver(uint64(10+10*i), 2)
	}
	last := uint64(10 + 10*(maxMultiple+9))
	for revision, want := range map[uint64]bool{
		1: false, 10: false, 15: false, 100: false, // forgotten
		115: true, 120: false, last - 1: true, last: false, last + 1: false,
	} {
		if got := s.isSingle(revision); got != want {
			t.Errorf("%d is single: %t", revision, got)
		}
	}
	if len(s.multiple) != maxMultiple {
		t.Errorf("%d are remembered", len(s.multiple))
	}
}

// A cache that cannot begin with initial events begins with a list, and its watch
// continues from there. How many objects changed at the revision of that list is not
// known, so that a client which has a part of it must get it again.
func TestListedAnew(t *testing.T) {
	fake := newFake()
	s := newSource(fake)
	s.handedOver(6, 2)
	s.handedOver(7, 1)
	mustWatch(t, s, cacheOptions("7"))
	if s.isSingle(6) || !s.isSingle(7) {
		t.Error("continuing from where it ended counts as a list")
	}
	mustWatch(t, s, cacheOptions("9"))
	if s.isSingle(6) || s.isSingle(8) || s.isSingle(9) || !s.isComplete(9) {
		t.Error("a list is not known as whole, or what is not known is taken as single")
	}
	s.handedOver(10, 1)
	if !s.isSingle(10) {
		t.Error("what comes after the list is not known as single")
	}
	if diff := cmp.Diff([]string{"7", "9"}, []string{fake.watches[0].ResourceVersion, fake.watches[1].ResourceVersion}); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}
