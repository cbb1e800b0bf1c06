// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	linked "container/list"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

// errSlowWatch is the error of a write to a watch that was ended for later ones.
var errSlowWatch = errors.New("the client does not read its watch, and the events that wait for clients take too many bytes: watch again")

// past is a deadline that is over.
var past = time.Unix(1, 0)

const (
	// minWriteTime is how long a write may take at least, although its user has too many. A client
	// that reads is quicker.
	minWriteTime = time.Second
	// maxKept is how many bytes of its last event a watch keeps that no event follows.
	maxKept = 128 << 10
)

// WatchLimits bound what watches take whose clients do not read.
type WatchLimits struct {
	// UserBytes and Bytes are how many bytes of events may be in writes at the same time: those
	// of one user, which may exceed it for minWriteTime, and all.
	UserBytes, Bytes int64
	// WriteTimeout is how long one write may take.
	WriteTimeout time.Duration
	// Watches is how many watches there may be. One user alone has at most half of them.
	Watches int
}

// watchMemory is the memory reserved for a watch whose client reads.
const watchMemory = 128 << 10

// DefaultWatchLimits are those for the memory of this process. A watch takes about six times
// the bytes of the event that it writes, so those of one user take a tenth of the memory, and
// all of them less than half. Those that write nothing take a quarter.
func DefaultWatchLimits() WatchLimits {
	limit := memory.Size()
	return WatchLimits{UserBytes: limit / 64, Bytes: limit / 16, WriteTimeout: 30 * time.Second, Watches: int(limit / 4 / watchMemory)}
}

// slowWatches ends watches whose clients do not read. Where the events that are being written
// take too many bytes, it ends the write that began first: a client that reads is quick. A
// single watch of a user may so write an event of any size. Where those of one user take too many,
// no write ends that began less than minWriteTime ago: many watches may have an event at the same
// time. Where those of all do, writes end at once, first those of users who have too many.
//
// A write that was ended returns at once, unless it is one of HTTP/2 and the client reads
// nothing from the whole connection. Where such writes take as many bytes again, further ones
// of their users fail. Such a connection is closed when a write that was ended has not returned
// within minWriteTime, or when another has not for twice as long as it may take.
type slowWatches struct {
	limits WatchLimits
	clock  clock.PassiveClock

	mu sync.Mutex
	// writes are the *watchWriter that write and were not ended, in the order in which they began.
	writes linked.List
	// live are the bytes of writes, and ending those of writes that were ended and have not returned.
	live, ending watchBytes
}

// watchBytes are the bytes of some writes: of all, and of each user that has any.
type watchBytes struct {
	all   int64
	users map[string]int64
}

func (b *watchBytes) add(user string, n int64) {
	if b.users == nil {
		b.users = map[string]int64{}
	}
	b.all += n
	if b.users[user] += n; b.users[user] == 0 {
		delete(b.users, user)
	}
}

// WithWatchLimits ends watches whose clients do not read, and refuses those of a user who has too many with 429.
// It has to be inside of authentication. A watch over a websocket, which would take the connection over, is refused.
func WithWatchLimits(handler http.Handler, limits WatchLimits) http.Handler {
	slow := &slowWatches{limits: limits, clock: clock.RealClock{}}
	slots := fairness.NewSlots(limits.Watches, limits.Watches)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
			if strings.EqualFold(req.Header.Get("Upgrade"), "websocket") { // as the generic handler asks
				http.Error(w, "watches over websockets are not served", http.StatusBadRequest)
				return
			}
			// A compressed event is written in small pieces, while all of it stays in memory.
			req.Header.Del("Accept-Encoding")
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			req = req.WithContext(ctx)
			release, ok := slots.Take(accountOf(req))
			if !ok {
				refuse(w, req, info, apierrors.NewTooManyRequests("too many watches of this user are open", 1))
				return
			}
			defer release()
			keepHeader(req.Header, "Accept", "User-Agent")
			writer := slow.writer(w, req, cancel)
			// What the server writes when the watch ends has a deadline as well.
			defer writer.limitTime()
			defer writer.stop()
			w = responsewriter.WrapForHTTP1Or2(writer)
		}
		handler.ServeHTTP(w, req)
	})
}

// writer returns a writer for a watch, which ends by cancel.
func (s *slowWatches) writer(w http.ResponseWriter, req *http.Request, cancel func()) *watchWriter {
	writer := &watchWriter{ResponseWriter: w, controller: http.NewResponseController(w), slow: s, cancel: cancel, conn: connections.Find(req), user: accountOf(req)}
	if info, ok := request.RequestInfoFrom(req.Context()); ok {
		writer.keepsEvents = isConverted(req, info.APIGroup)
	}
	query := req.URL.Query()
	sendsInitial := isTrue(query, "sendInitialEvents")
	writer.initial = sendsInitial && isTrue(query, "allowWatchBookmarks")
	if !writer.initial && (sendsInitial || strings.Trim(query.Get("resourceVersion"), "0") == "") {
		writer.initialUntil = s.clock.Now().Add(s.limits.WriteTimeout)
	}
	return writer
}

// keepHeader removes all fields of a header but the first values of these names, which stay in memory as long as
// the request.
func keepHeader(header http.Header, names ...string) {
	kept := map[string]string{}
	for _, name := range names {
		if value := header.Get(name); value != "" {
			kept[name] = strings.Clone(value)
		}
	}
	clear(header)
	for name, value := range kept {
		header.Set(name, value)
	}
}

// isTrue reports whether a parameter of a request is true, as the generic handlers read it.
func isTrue(query url.Values, key string) bool {
	value := query.Get(key)
	return query.Has(key) && value != "0" && !strings.EqualFold(value, "false")
}

// watchWriter writes the events of one watch, one at a time.
type watchWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	slow       *slowWatches
	user       string
	// conn is the connection, nil if it is not known. It may be that of other requests, too.
	conn *connections.Conn
	// cancel ends the watch. Its handler would wait for events after a flush that failed.
	cancel func()
	// keepsEvents: the generic handler keeps a buffer as large as the largest event. It does so
	// where it converts objects to rows of tables or to metadata. What encodes whole objects, and
	// the events themselves, frees its buffers: see decoding.NewSerializer.
	keepsEvents bool
	// kept is the size of such a buffer.
	kept int
	// initial: the watch has asked for the objects that exist, and the bookmark that ends these was not
	// written yet. Its client could not watch from there, and would begin again.
	initial bool
	// initialUntil: the watch begins with the objects that exist, and no bookmark ends these. They
	// are taken to be written by this time. Zero is any other watch.
	initialUntil time.Time
	// ending ends the watch at initialUntil, because it keeps too much; nil if it does not.
	ending *time.Timer
	// unflushed is the size of the last write since the last flush.
	unflushed int

	// What follows is under the lock of slow: size, began and place are those of the write that
	// continues; hurried says that its deadline was brought forward, and ended that no more may be
	// written.
	size    int64
	began   time.Time
	place   *linked.Element
	hurried bool
	ended   bool
	// frozen closes the connection if a write does not return although its deadline was long ago; nil
	// if the connection is not known.
	frozen *time.Timer
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *watchWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *watchWriter) Write(p []byte) (n int, err error) {
	if w.keepsEvents {
		w.kept = max(w.kept, len(p))
	}
	w.unflushed = max(len(p), w.kept)
	w.initial = w.initial && !beginsBookmark(p)
	err = w.bounded(w.unflushed, func() error {
		n, err = w.ResponseWriter.Write(p)
		return err
	})
	return n, err
}

// beginsBookmark reports whether what is written begins an event of type BOOKMARK. All encodings have the
// type first, before anything that users write.
func beginsBookmark(p []byte) bool {
	return bytes.Contains(p[:min(len(p), 24)], []byte(watch.Bookmark))
}

// Flush implements http.Flusher.
func (w *watchWriter) Flush() {
	_ = w.bounded(w.unflushed, w.controller.Flush) // an error has ended the watch
	w.unflushed = 0
	if w.kept <= maxKept || w.initial || w.ending != nil {
		return
	}
	if left := w.initialUntil.Sub(w.slow.clock.Now()); left > 0 {
		w.ending = time.AfterFunc(left, w.cancel)
		return
	}
	w.cancel() // its client watches again from there
}

// stop stops the timer of a watch that has ended.
func (w *watchWriter) stop() {
	if w.ending != nil {
		w.ending.Stop()
	}
}

// bounded calls write, which writes an event of a size, within the limits. An error ends the watch.
func (w *watchWriter) bounded(size int, write func() error) (err error) {
	defer func() {
		if err != nil { // the deadline stays
			w.cancel()
		}
	}()
	w.limitTime()
	if !w.slow.begin(w, int64(size)) {
		return errSlowWatch
	}
	err = write()
	if !w.slow.end(w) {
		return errSlowWatch
	}
	if err == nil {
		_ = w.controller.SetWriteDeadline(time.Time{})
	}
	return err
}

// begin counts a write, and ends those that began first if there are too many bytes. It reports
// whether the watch may continue.
func (s *slowWatches) begin(w *watchWriter, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stuck := s.ending.users[w.user]
	w.ended = w.ended || stuck > s.limits.UserBytes || stuck > 0 && s.ending.all > s.limits.Bytes
	if w.ended {
		return false
	}
	if w.conn != nil {
		w.frozen = time.AfterFunc(2*s.limits.WriteTimeout, func() { _ = w.conn.Close() })
	}
	if size == 0 {
		return true
	}
	w.size, w.began, w.hurried, w.place = size, s.clock.Now(), false, s.writes.PushBack(w)
	s.live.add(w.user, size)
	over := s.live.users[w.user] - s.limits.UserBytes
	s.before(w, func(other *watchWriter) bool {
		if over > 0 && other.user == w.user {
			over -= other.size
			s.endInTime(other)
		}
		return over > 0
	})
	for _, all := range []bool{false, true} {
		s.before(w, func(other *watchWriter) bool {
			exceeds := s.live.all > s.limits.Bytes
			if exceeds && (all || s.live.users[other.user] > s.limits.UserBytes) {
				s.endEarly(other)
			}
			return exceeds
		})
	}
	return true
}

// before calls visit for the writes that began before one, the first one first, as long as it
// returns true. visit may end the write that it is given.
func (s *slowWatches) before(w *watchWriter, visit func(*watchWriter) bool) {
	for first := s.writes.Front(); first != w.place; {
		next := first.Next()
		if !visit(first.Value.(*watchWriter)) {
			return
		}
		first = next
	}
}

// endInTime lets a write return that waits for its client, when it has waited for minWriteTime.
func (s *slowWatches) endInTime(w *watchWriter) {
	by := w.began.Add(minWriteTime)
	switch {
	case !s.clock.Now().Before(by):
		s.endEarly(w)
	case !w.hurried:
		w.hurried = true
		_ = w.controller.SetWriteDeadline(by)
	}
}

// endEarly lets a write return that waits for its client. It has not returned before, as end
// takes the lock.
func (s *slowWatches) endEarly(w *watchWriter) {
	w.ended = true
	s.writes.Remove(w.place)
	s.live.add(w.user, -w.size)
	s.ending.add(w.user, w.size)
	_ = w.controller.SetWriteDeadline(past)
	if w.frozen != nil {
		w.frozen.Reset(minWriteTime)
	}
}

// end counts a write no longer. It reports whether the watch may continue.
func (s *slowWatches) end(w *watchWriter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.frozen != nil {
		w.frozen.Stop()
	}
	switch {
	case w.place == nil: // it had no bytes
	case w.ended:
		s.ending.add(w.user, -w.size)
	default:
		s.writes.Remove(w.place)
		s.live.add(w.user, -w.size)
	}
	w.place = nil
	return !w.ended
}

// limitTime sets the deadline of writes. A connection without deadlines continues without.
func (w *watchWriter) limitTime() {
	_ = w.controller.SetWriteDeadline(w.slow.clock.Now().Add(w.slow.limits.WriteTimeout))
}
