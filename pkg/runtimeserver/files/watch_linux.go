// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/streams"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/users"
)

const (
	// maxWatchers is how many watches there are at a time, and maxFolders how many folders one
	// of them has.
	maxWatchers = 64
	maxFolders  = 8192
	// maxEvents is how many events are kept for a client that asks for them, and
	// maxEventBytes how large they are together.
	maxEvents     = 4096
	maxEventBytes = 1 << 20
	// idle is how long no one has to ask for events until a watcher may make way for another.
	idle = 10 * time.Minute
)

var (
	errTooManyWatchers = fmt.Errorf("there are %d watchers, and no more may be: remove some", maxWatchers)
	errTooManyFolders  = fmt.Errorf("the watch has more than %d folders", maxFolders)
	errEventsLost      = errors.New("events were lost, because too many happened at once or were not asked for")
)

// watch is a watch of a folder, with the rights of a user.
type watch struct {
	user      users.User
	root      string
	recursive bool
	entries   bool
	notify    *fsnotify.Watcher
	folders   int
}

// watchRequest is what both kinds of watches ask for.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
}

// newWatch begins to watch, and has to be closed.
func newWatch(ctx context.Context, u users.User, path string, request watchRequest) (*watch, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watching: %w", err))
	}
	w := &watch{user: u, root: path, recursive: request.GetRecursive(), entries: request.GetIncludeEntry(), notify: notify}
	err = u.Do(ctx, func() error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %q is no directory", path))
		}
		return w.add(path, nil)
	})
	if err != nil {
		_ = notify.Close() // nothing was watched
		return nil, asError(err)
	}
	return w, nil
}

// add watches a folder, and those below it if that is asked for. found is called with what
// is in it already.
func (w *watch) add(folder string, found func(path string)) error {
	if w.folders >= maxFolders {
		w.folders = len(w.notify.WatchList()) // without those that are gone
	}
	if w.folders >= maxFolders {
		return errTooManyFolders
	}
	if err := w.notify.Add(folder); err != nil {
		return err
	}
	w.folders++
	if !w.recursive {
		return nil
	}
	children, err := readFolder(folder, maxEntries)
	if err != nil {
		return err
	}
	for _, child := range children {
		path := filepath.Join(folder, child.Name())
		if found != nil {
			found(path)
		}
		if !child.IsDir() {
			continue
		}
		if err := w.add(path, found); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// events are what one event of the system means. The error says that the watch does not see
// everything any more.
func (w *watch) events(ctx context.Context, event fsnotify.Event) ([]*filesystempb.FilesystemEvent, error) {
	made := w.recursive && event.Has(fsnotify.Create)
	if !w.entries && !made {
		return w.describe(event), nil // without a look at the files
	}
	var all []*filesystempb.FilesystemEvent
	err := w.user.Do(ctx, func() error {
		all = w.describe(event)
		if !made {
			return nil
		}
		info, err := os.Lstat(event.Name)
		if err != nil || !info.IsDir() {
			return nil //nolint:nilerr // it has just gone
		}
		// What was made in a new folder before it was watched counts as made now.
		err = w.add(event.Name, func(path string) {
			if len(all) < maxEvents {
				all = append(all, w.event(path, filesystempb.EventType_EVENT_TYPE_CREATE))
			}
		})
		if err != nil && isGone(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return all, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watching a new folder: %w", err))
	}
	return all, nil
}

func (w *watch) describe(event fsnotify.Event) []*filesystempb.FilesystemEvent {
	var all []*filesystempb.FilesystemEvent
	for _, kind := range []struct {
		op fsnotify.Op
		is filesystempb.EventType
	}{
		{fsnotify.Create, filesystempb.EventType_EVENT_TYPE_CREATE},
		{fsnotify.Write, filesystempb.EventType_EVENT_TYPE_WRITE},
		{fsnotify.Remove, filesystempb.EventType_EVENT_TYPE_REMOVE},
		{fsnotify.Rename, filesystempb.EventType_EVENT_TYPE_RENAME},
		{fsnotify.Chmod, filesystempb.EventType_EVENT_TYPE_CHMOD},
	} {
		if event.Has(kind.op) {
			all = append(all, w.event(event.Name, kind.is))
		}
	}
	return all
}

// event describes an event. With entries the caller acts as the user.
func (w *watch) event(path string, kind filesystempb.EventType) *filesystempb.FilesystemEvent {
	e := &filesystempb.FilesystemEvent{Name: text(cmp.Or(strings.TrimPrefix(strings.TrimPrefix(path, w.root), "/"), ".")), Type: kind}
	if w.entries {
		e.Entry, _ = newDescriber().entry(path) // or it is gone
	}
	return e
}

func (w *watch) close() { _ = w.notify.Close() } // which does not fail on Linux

// WatchDir sends the changes in a folder, until the client is gone.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[filesystempb.WatchDirRequest], stream *connect.ServerStream[filesystempb.WatchDirResponse]) error {
	done, err := s.streams.Begin()
	if err != nil {
		return err
	}
	defer done()
	path := req.Msg.GetPath()
	u, err := userOf(s.access, req.Header(), &path)
	if err != nil {
		return err
	}
	release, err := s.watchers.slot()
	if err != nil {
		return err
	}
	defer release()
	w, err := newWatch(ctx, u, path, req.Msg)
	if err != nil {
		return err
	}
	defer w.close()
	if err := stream.Send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Start{Start: &filesystempb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	alive := s.clock.NewTicker(streams.KeepAlive(req.Header()))
	defer alive.Stop()
	return w.follow(ctx, alive, stream.Send)
}

func (w *watch) follow(ctx context.Context, alive clock.Ticker, send func(*filesystempb.WatchDirResponse) error) error {
	for {
		select {
		case event, ok := <-w.notify.Events:
			if !ok {
				return connect.NewError(connect.CodeUnavailable, errors.New("the watch has ended"))
			}
			events, lost := w.events(ctx, event)
			for _, e := range events {
				if err := send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
					return err
				}
			}
			if lost != nil {
				return lost
			}
		case err := <-w.notify.Errors:
			return watchError(err)
		case <-alive.C():
			if err := send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Keepalive{Keepalive: &filesystempb.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func watchError(err error) error {
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		return connect.NewError(connect.CodeResourceExhausted, errEventsLost)
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("watching: %w", err))
}

// watchers are those that clients ask for events, and the count of all watches.
type watchers struct {
	clock clock.PassiveClock
	slots chan struct{}

	mu     sync.Mutex
	byID   map[string]*watcher
	closed bool
}

// watcher keeps events for a client.
type watcher struct {
	watch     *watch
	collector sync.WaitGroup

	mu     sync.Mutex
	events []*filesystempb.FilesystemEvent
	bytes  int
	failed error
	asked  time.Time
}

func newWatchers(c clock.PassiveClock) *watchers {
	return &watchers{clock: c, slots: make(chan struct{}, maxWatchers), byID: map[string]*watcher{}}
}

// slot takes the place of one watch. Where there is none left, a watcher that no one has asked for
// events in a while makes way.
func (ws *watchers) slot() (release func(), err error) {
	release = func() { <-ws.slots }
	for range 2 {
		select {
		case ws.slots <- struct{}{}:
			return release, nil
		default:
		}
		if !ws.removeIdle() {
			break
		}
	}
	return nil, connect.NewError(connect.CodeResourceExhausted, errTooManyWatchers)
}

func (ws *watchers) removeIdle() bool {
	ws.mu.Lock()
	oldest, since := "", ws.clock.Now().Add(-idle)
	for id, w := range ws.byID {
		if asked := w.askedLast(); asked.Before(since) {
			oldest, since = id, asked
		}
	}
	ws.mu.Unlock()
	return oldest != "" && ws.remove(oldest)
}

func (w *watcher) askedLast() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// remove ends a watcher, and reports whether there was one.
func (ws *watchers) remove(id string) bool {
	ws.mu.Lock()
	w := ws.byID[id]
	delete(ws.byID, id)
	ws.mu.Unlock()
	if w == nil {
		return false
	}
	w.watch.close()
	w.collector.Wait()
	<-ws.slots
	return true
}

func (ws *watchers) close() {
	ws.mu.Lock()
	ws.closed = true
	ids := make([]string, 0, len(ws.byID))
	for id := range ws.byID {
		ids = append(ids, id)
	}
	ws.mu.Unlock()
	for _, id := range ids {
		ws.remove(id)
	}
}

// collect keeps events until the watch is closed.
func (w *watcher) collect(ctx context.Context) {
	for {
		select {
		case event, ok := <-w.watch.notify.Events:
			if !ok {
				return
			}
			w.keep(w.watch.events(ctx, event))
		case err, ok := <-w.watch.notify.Errors:
			if !ok {
				return
			}
			w.keep(nil, watchError(err))
		}
	}
}

func (w *watcher) keep(events []*filesystempb.FilesystemEvent, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if w.bytes += proto.Size(e); w.bytes > maxEventBytes || len(w.events) >= maxEvents {
			err = connect.NewError(connect.CodeResourceExhausted, errEventsLost)
			break
		}
		w.events = append(w.events, e)
	}
	if err != nil {
		w.failed = err
	}
}

// CreateWatcher begins to keep the changes in a folder.
func (s *Service) CreateWatcher(ctx context.Context, req *connect.Request[filesystempb.CreateWatcherRequest]) (*connect.Response[filesystempb.CreateWatcherResponse], error) {
	path := req.Msg.GetPath()
	u, err := userOf(s.access, req.Header(), &path)
	if err != nil {
		return nil, err
	}
	release, err := s.watchers.slot()
	if err != nil {
		return nil, err
	}
	watch, err := newWatch(ctx, u, path, req.Msg)
	if err != nil {
		release()
		return nil, err
	}
	w := &watcher{watch: watch, asked: s.clock.Now()}
	id := rand.Text()
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	if s.watchers.closed {
		watch.close()
		release()
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the runtime is stopping"))
	}
	s.watchers.byID[id] = w
	w.collector.Go(func() { w.collect(context.WithoutCancel(ctx)) }) // beyond this request
	return connect.NewResponse(&filesystempb.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents returns the changes since the last call. If some were lost, it fails once.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[filesystempb.GetWatcherEventsRequest]) (*connect.Response[filesystempb.GetWatcherEventsResponse], error) {
	s.watchers.mu.Lock()
	w := s.watchers.byID[req.Msg.GetWatcherId()]
	s.watchers.mu.Unlock()
	if w == nil {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = s.clock.Now()
	events, failed := w.events, w.failed
	w.events, w.bytes, w.failed = nil, 0, nil
	if failed != nil {
		return nil, failed
	}
	return connect.NewResponse(&filesystempb.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher ends a watcher.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[filesystempb.RemoveWatcherRequest]) (*connect.Response[filesystempb.RemoveWatcherResponse], error) {
	if !s.watchers.remove(req.Msg.GetWatcherId()) {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	return connect.NewResponse(&filesystempb.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %q not found", id))
}
