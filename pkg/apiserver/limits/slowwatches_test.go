// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"
)

// heldWriter is a connection whose writes wait until they are released, or have a deadline
// that is over.
type heldWriter struct {
	http.ResponseWriter
	began, letGo, over chan struct{}
	expire             sync.Once

	mu        sync.Mutex
	deadlines []time.Time
}

func newHeldWriter() *heldWriter {
	return &heldWriter{ResponseWriter: httptest.NewRecorder(),
		began: make(chan struct{}), letGo: make(chan struct{}), over: make(chan struct{})}
}

func (h *heldWriter) hold() error {
	h.began <- struct{}{}
	select {
	case <-h.letGo:
		return nil
	case <-h.over:
		return os.ErrDeadlineExceeded
	}
}

func (h *heldWriter) Write(p []byte) (int, error) {
	if err := h.hold(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (h *heldWriter) FlushError() error { return h.hold() }

func (h *heldWriter) SetWriteDeadline(at time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadlines = append(h.deadlines, at)
	if at.Equal(past) {
		h.expire.Do(func() { close(h.over) })
	}
	return nil
}

// heldWatch is a watch with a write that waits.
type heldWatch struct {
	*heldWriter
	writer *watchWriter
	result chan error
	ctx    context.Context
}

func (s *slowWatches) watchOf(name string) *heldWatch {
	held := newHeldWriter()
	req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	req = req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: name}))
	ctx, cancel := context.WithCancel(req.Context())
	return &heldWatch{heldWriter: held, writer: s.writer(held, req, cancel), result: make(chan error, 1), ctx: ctx}
}

// write begins a write of n bytes, and returns when it waits.
func (w *heldWatch) write(n int) *heldWatch {
	go func() {
		_, err := w.writer.Write(make([]byte, n))
		w.result <- err
	}()
	<-w.began
	return w
}

func (w *heldWatch) finish() error {
	w.letGo <- struct{}{}
	return <-w.result
}

// checkEnded checks that the write has ended.
func (w *heldWatch) checkEnded(t *testing.T) {
	t.Helper()
	select {
	case <-w.over:
	default:
		t.Fatal("the write was not ended")
	}
	if err := <-w.result; !errors.Is(err, errSlowWatch) {
		t.Errorf("a write that was ended: %v", err)
	}
	if w.ctx.Err() == nil {
		t.Error("its handler continues")
	}
}

// checkGoesOn checks that a write was not ended, and finishes it.
func (w *heldWatch) checkGoesOn(t *testing.T, name string) {
	t.Helper()
	if err := w.finish(); err != nil || w.ctx.Err() != nil {
		t.Errorf("%s: %v, its context %v", name, err, w.ctx.Err())
	}
}

func newSlowWatches() *slowWatches {
	return &slowWatches{limits: WatchLimits{UserBytes: 100, Bytes: 300, WriteTimeout: time.Minute, Watches: 100},
		clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
}

// pass lets the shortest time of a write pass.
func (s *slowWatches) pass() {
	clk := s.clock.(*clocktesting.FakePassiveClock)
	clk.SetTime(clk.Now().Add(minWriteTime))
}

func (s *slowWatches) check(t *testing.T) {
	t.Helper()
	if s.live.all != 0 || s.ending.all != 0 || s.writes.Len() != 0 || len(s.live.users) != 0 || len(s.ending.users) != 0 {
		t.Errorf("without writes, %d writes with %v and %v are counted", s.writes.Len(), s.live, s.ending)
	}
}

// The write of a user that began first ends if those of the user have too many bytes.
func TestSlowWatchesOfAUser(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	other := s.watchOf("other").write(90)
	first, second := s.watchOf("one").write(60), s.watchOf("one").write(40)
	s.pass()
	third := s.watchOf("one").write(1)
	first.checkEnded(t)
	if _, err := first.writer.Write([]byte("x")); !errors.Is(err, errSlowWatch) {
		t.Errorf("a write after it: %v", err)
	}
	for name, w := range map[string]*heldWatch{"other": other, "second": second, "third": third} {
		w.checkGoesOn(t, name)
	}
	s.check(t)
}

// Writes that began a moment ago may take more than their user may have, and get a deadline: they go
// on if their clients read.
func TestManyEventsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	began := s.clock.Now()
	first, second, third := s.watchOf("one").write(60), s.watchOf("one").write(60), s.watchOf("one").write(60)
	for name, test := range map[string]struct {
		watch *heldWatch
		want  time.Time
	}{
		"first":  {first, began.Add(minWriteTime)},
		"second": {second, began.Add(minWriteTime)},
		"third":  {third, began.Add(time.Minute)}, // without the others it is not too much
	} {
		if deadlines := test.watch.deadlines; !deadlines[len(deadlines)-1].Equal(test.want) {
			t.Errorf("the deadlines of the %s write are %v, want %v", name, deadlines, test.want)
		}
	}
	second.checkGoesOn(t, "second")
	s.pass()
	fourth := s.watchOf("one").write(10)
	first.checkEnded(t)
	third.checkGoesOn(t, "third")
	fourth.checkGoesOn(t, "fourth")
	s.check(t)
}

// If all writes take too many bytes, those of users who have too many end at once, before others that
// began earlier.
func TestUsersWithTooManyEndFirst(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	other := s.watchOf("other").write(90)
	first, second, third := s.watchOf("one").write(75), s.watchOf("one").write(75), s.watchOf("one").write(75)
	first.checkEnded(t)
	other.checkGoesOn(t, "other")
	second.checkGoesOn(t, "second")
	third.checkGoesOn(t, "third")
	s.check(t)
}

// The ServiceAccounts of a namespace count together, and those of another for themselves.
func TestServiceAccountsOfANamespace(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	other := s.watchOf("system:serviceaccount:two:a").write(60)
	first := s.watchOf("system:serviceaccount:one:a").write(60)
	s.pass()
	second := s.watchOf("system:serviceaccount:one:b").write(60)
	first.checkEnded(t)
	other.checkGoesOn(t, "the one of another namespace")
	second.checkGoesOn(t, "second")
	s.check(t)
}

// A flush that is ended, or that may not begin, ends the handler: it would wait for the next event.
func TestFlushesThatAreEnded(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	flush := func() (*heldWatch, chan struct{}) {
		w, done := s.watchOf("one").write(60), make(chan struct{})
		w.checkGoesOn(t, "a write")
		go func() {
			defer close(done)
			w.writer.Flush()
		}()
		return w, done
	}
	first, done := flush()
	<-first.began
	s.pass()
	second := s.watchOf("one").write(60)
	<-done
	if first.ctx.Err() == nil {
		t.Error("the handler of a flush that was ended continues")
	}
	second.checkGoesOn(t, "second")
	s.ending.add("one", 101)
	refused := s.watchOf("one")
	refused.writer.unflushed = 60
	if refused.writer.Flush(); refused.ctx.Err() == nil {
		t.Error("the handler of a flush that was refused continues")
	}
	s.ending.add("one", -101)
	s.check(t)
}

// A watch of metadata, for which the generic handler keeps the largest event, ends after a large one.
// Watches of objects stay open.
func TestLargeEventsOfMetadata(t *testing.T) {
	t.Parallel()
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for name, test := range map[string]struct {
		accept string
		bytes  int
		ends   bool
	}{
		"large metadata":        {metadata, maxKept + 1, true},
		"large row of a table":  {"application/json;as=Table;g=meta.k8s.io;v=v1,application/json", maxKept + 1, true},
		"metadata":              {metadata, maxKept, false},
		"large object":          {"application/json", maxKept + 1, false},
		"large object, any way": {"", maxKept + 1, false},
	} {
		req := httptest.NewRequest(http.MethodGet, "/?resourceVersion=5", http.NoBody)
		req.Header.Set("Accept", test.accept)
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "watch"}))
		limits := WatchLimits{UserBytes: 1 << 30, Bytes: 1 << 30, WriteTimeout: time.Minute, Watches: 100}
		WithWatchLimits(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if _, err := w.Write(make([]byte, test.bytes)); err != nil || req.Context().Err() != nil {
				t.Errorf("%s: a write: %v, its context %v", name, err, req.Context().Err())
			}
			_, _ = w.Write([]byte("a small event after it"))
			w.(http.Flusher).Flush()
			if ends := req.Context().Err() != nil; ends != test.ends {
				t.Errorf("%s: the watch ends: %t", name, ends)
			}
		}), limits).ServeHTTP(httptest.NewRecorder(), req)
	}
}

// TestLargeInitialEvents: a watch that asks for the objects that exist stays open until it has all of them,
// because its client would begin again.
func TestLargeInitialEvents(t *testing.T) {
	t.Parallel()
	req := httptest.NewRequest(http.MethodGet, "/?sendInitialEvents=True&allowWatchBookmarks=1", http.NoBody)
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "watch"}))
	limits := WatchLimits{UserBytes: 1 << 30, Bytes: 1 << 30, WriteTimeout: time.Minute, Watches: 100}
	WithWatchLimits(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, event := range []struct {
			text string
			ends bool
		}{
			{`{"type":"ADDED","object":"` + strings.Repeat("x", maxKept), false},
			{`{"type":"ADDED","object":"BOOKMARK`, false},
			{`{"type":"BOOKMARK","object":`, true},
		} {
			_, _ = w.Write([]byte(event.text))
			w.(http.Flusher).Flush()
			if ends := req.Context().Err() != nil; ends != event.ends {
				t.Errorf("after %.30s: the watch ends: %t", event.text, ends)
			}
		}
	}), limits).ServeHTTP(httptest.NewRecorder(), req)
}

// TestLargeEventsOfTheBeginning: a watch from no revision, or from "0", begins with the objects that
// exist, and no bookmark ends these. It stays open for as long as a write may take, and ends then.
func TestLargeEventsOfTheBeginning(t *testing.T) {
	t.Parallel()
	watch := func(query string, timeout time.Duration, check func(ctx context.Context)) {
		req := httptest.NewRequest(http.MethodGet, "/"+query, http.NoBody)
		req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "watch"}))
		limits := WatchLimits{UserBytes: 1 << 30, Bytes: 1 << 30, WriteTimeout: timeout, Watches: 100}
		WithWatchLimits(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			for range 2 {
				_, _ = w.Write(make([]byte, maxKept+1))
				w.(http.Flusher).Flush()
			}
			check(req.Context())
		}), limits).ServeHTTP(httptest.NewRecorder(), req)
	}
	for _, query := range []string{"", "?resourceVersion=00", "?sendInitialEvents=false", "?resourceVersion=5&sendInitialEvents=1"} {
		watch(query, time.Hour, func(ctx context.Context) {
			if ctx.Err() != nil {
				t.Errorf("%q: the watch has ended", query)
			}
		})
		watch(query, time.Millisecond, func(ctx context.Context) { <-ctx.Done() })
	}
}

// TestKeptBuffersCount: the buffer that the generic handler keeps counts in each write of the watch.
func TestKeptBuffersCount(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	w := s.watchOf("one")
	w.writer.keepsEvents, w.writer.kept = true, 90
	w.write(1)
	if got := s.live.users["one"]; got != 90 {
		t.Errorf("%d bytes count", got)
	}
	if err := w.finish(); err != nil {
		t.Error(err)
	}
	s.check(t)
}

// The writes of all users have a limit of their own.
func TestSlowWatchesOfAllUsers(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	first, second, third := s.watchOf("a").write(100), s.watchOf("b").write(100), s.watchOf("c").write(100)
	fourth := s.watchOf("d").write(100)
	first.checkEnded(t)
	for _, w := range []*heldWatch{second, third, fourth} {
		if err := w.finish(); err != nil {
			t.Error(err)
		}
	}
	s.check(t)
}

// Writes that were ended and do not return keep their user from more, and no other user.
func TestSlowWatchesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	var stuck []*heldWatch
	for range 3 {
		w := s.watchOf("one")
		w.expire.Do(func() {}) // a deadline has no effect
		stuck = append(stuck, w.write(60))
		s.pass()
	}
	if s.begin(s.watchOf("one").writer, 1) {
		t.Fatal("the user may write more")
	}
	if err := s.watchOf("other").write(1).finish(); err != nil {
		t.Errorf("a write of another user: %v", err)
	}
	for i, w := range stuck {
		if err := w.finish(); errors.Is(err, errSlowWatch) != (i < 2) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if err := s.watchOf("one").write(1).finish(); err != nil {
		t.Errorf("a write of the user after the others: %v", err)
	}
	s.check(t)
}

// A single watch writes an event that is larger than the limits, and flushes it.
func TestLargeEventOfASingleWatch(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	single := s.watchOf("one").write(1000)
	if err := single.finish(); err != nil {
		t.Error(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		single.writer.Flush()
	}()
	<-single.began
	if s.live.users["one"] != 1000 {
		t.Errorf("a flush counts as %d bytes", s.live.users["one"])
	}
	single.letGo <- struct{}{}
	<-done
	s.check(t)
}

// Each write has a deadline, which is removed after it, as a watch without events lasts.
func TestDeadlinesOfWatches(t *testing.T) {
	t.Parallel()
	s := newSlowWatches()
	w := s.watchOf("one").write(1)
	if want := s.clock.Now().Add(time.Minute); len(w.deadlines) != 1 || !w.deadlines[0].Equal(want) {
		t.Errorf("the deadlines are %v, want %v", w.deadlines, want)
	}
	if err := w.finish(); err != nil {
		t.Error(err)
	}
	if len(w.deadlines) != 2 || !w.deadlines[1].IsZero() {
		t.Errorf("the deadlines are %v, want that the last is none", w.deadlines)
	}
}

// Requests that are no watches get their writer as it is; watches are not compressed.
func TestOnlyWatchesAreBounded(t *testing.T) {
	t.Parallel()
	for verb, bounded := range map[string]bool{"watch": true, "list": false, "get": false} {
		req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		req.Header.Set("Accept-Encoding", "gzip")
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: verb}))
		outer := httptest.NewRecorder()
		WithWatchLimits(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if (w != http.ResponseWriter(outer)) != bounded || (req.Header.Get("Accept-Encoding") == "") != bounded {
				t.Errorf("%s: a writer %T, Accept-Encoding %q", verb, w, req.Header.Get("Accept-Encoding"))
			}
		}), DefaultWatchLimits()).ServeHTTP(outer, req)
	}
}

// TestWatchesOverWebsockets: a watch that would take over its connection, and with it its limits, is
// refused.
func TestWatchesOverWebsockets(t *testing.T) {
	for upgrade, want := range map[string]int{"": http.StatusOK, "WebSocket": http.StatusBadRequest} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Upgrade", upgrade)
		req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "watch"}))
		recorder := httptest.NewRecorder()
		WithWatchLimits(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), DefaultWatchLimits()).ServeHTTP(recorder, req)
		if recorder.Code != want {
			t.Errorf("Upgrade %q: %d, want %d", upgrade, recorder.Code, want)
		}
	}
}
