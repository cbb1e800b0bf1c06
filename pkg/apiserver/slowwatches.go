// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	linked "container/list"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/memory"
)

// errSlowWatch is the error of a write to a watch that was ended for later ones.
var errSlowWatch = errors.New("the client does not read its watch, and the events that wait for clients take too many bytes: watch again")

// past is a deadline that is over.
var past = time.Unix(1, 0)

// WatchLimits bound what watches take whose clients do not read.
type WatchLimits struct {
	// UserBytes and Bytes are how many bytes of events may be in writes at the same time: those
	// of one user, and all.
	UserBytes, Bytes int64
	// WriteTimeout is how long one write may take.
	WriteTimeout time.Duration
}

// DefaultWatchLimits are those for the memory of this process. A watch takes about six times
// the bytes of the event that it writes, so those of one user take a tenth of the memory, and
// all of them less than half.
func DefaultWatchLimits() WatchLimits {
	limit, ok := memory.Limit()
	if !ok {
		limit = 4 << 30
	}
	return WatchLimits{UserBytes: limit / 64, Bytes: limit / 16, WriteTimeout: 30 * time.Second}
}

// slowWatches ends watches whose clients do not read. Where the events that are being written
// take too many bytes, it ends the write that began first: a client that reads is quick. A
// single watch of a user may so write an event of any size.
type slowWatches struct {
	limits WatchLimits
	clock  clock.PassiveClock

	mu sync.Mutex
	// writes are the *watchWriter that write, in the order in which they began.
	writes linked.List
	// bytes are those of writes, and users has those of each user.
	bytes int64
	users map[string]int64
}

// withWatchLimits ends watches whose clients do not read. It has to be inside of authentication.
// A watch over a websocket takes the connection over, and is not bounded.
func withWatchLimits(handler http.Handler, limits WatchLimits) http.Handler {
	slow := &slowWatches{limits: limits, clock: clock.RealClock{}, users: map[string]int64{}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
			// A compressed event is written in small pieces, while all of it stays in memory.
			req.Header.Del("Accept-Encoding")
			writer := slow.writer(w, req)
			// What the server writes when the watch ends has a deadline as well.
			defer writer.limitTime()
			w = responsewriter.WrapForHTTP1Or2(writer)
		}
		handler.ServeHTTP(w, req)
	})
}

// writer returns a writer for a watch.
func (s *slowWatches) writer(w http.ResponseWriter, req *http.Request) *watchWriter {
	writer := &watchWriter{ResponseWriter: w, controller: http.NewResponseController(w), slow: s}
	if user, ok := request.UserFrom(req.Context()); ok {
		writer.user = user.GetName()
	}
	return writer
}

// watchWriter writes the events of one watch, one at a time.
type watchWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	slow       *slowWatches
	user       string
	// unflushed is the size of the last write since the last flush.
	unflushed int

	// What follows is under the lock of slow: size and place are those of the write that goes
	// on, and ended says that no more may be written.
	size  int64
	place *linked.Element
	ended bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *watchWriter) Write(p []byte) (n int, err error) {
	w.unflushed = len(p)
	err = w.bounded(len(p), func() error {
		n, err = w.ResponseWriter.Write(p)
		return err
	})
	return n, err
}

// Flush implements http.Flusher.
func (w *watchWriter) Flush() {
	// A write after an error fails.
	_ = w.bounded(w.unflushed, w.controller.Flush)
	w.unflushed = 0
}

// bounded calls write, which writes an event of a size, within the limits.
func (w *watchWriter) bounded(size int, write func() error) error {
	w.limitTime()
	if !w.slow.begin(w, int64(size)) {
		return errSlowWatch
	}
	err := write()
	if !w.slow.end(w) {
		return errSlowWatch
	}
	if err == nil { // else the deadline stays
		_ = w.controller.SetWriteDeadline(time.Time{})
	}
	return err
}

// begin counts a write, and ends those that began first if there are too many bytes. It reports
// whether the watch may go on.
func (s *slowWatches) begin(w *watchWriter, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended {
		return false
	}
	if size == 0 {
		return true
	}
	w.size, w.place = size, s.writes.PushBack(w)
	s.bytes += size
	s.users[w.user] += size
	for first := s.writes.Front(); first != w.place; {
		next := first.Next()
		other := first.Value.(*watchWriter)
		if s.bytes > s.limits.Bytes || other.user == w.user && s.users[w.user] > s.limits.UserBytes {
			other.ended = true
			s.remove(other)
			// A write that is blocked returns. It has not returned before, as end takes the lock.
			_ = other.controller.SetWriteDeadline(past)
		}
		first = next
	}
	return true
}

// end counts a write no longer. It reports whether the watch may go on.
func (s *slowWatches) end(w *watchWriter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(w)
	return !w.ended
}

// remove counts the write of w no longer, if it is counted.
func (s *slowWatches) remove(w *watchWriter) {
	if w.place == nil {
		return
	}
	s.writes.Remove(w.place)
	s.bytes -= w.size
	if s.users[w.user] -= w.size; s.users[w.user] == 0 {
		delete(s.users, w.user)
	}
	w.place = nil
}

// limitTime sets the deadline of writes. A connection without deadlines goes on without.
func (w *watchWriter) limitTime() {
	_ = w.controller.SetWriteDeadline(w.slow.clock.Now().Add(w.slow.limits.WriteTimeout))
}
