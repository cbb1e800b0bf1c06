// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func paused(r *routes.Route) { r.State, r.AutoResume = routes.Paused, true }

func TestTrafficResumesASandboxOnce(t *testing.T) {
	var asked, release = make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(w *world, o *proxy.Options) {
		o.Resume = func(ctx context.Context, route routes.Route) error {
			close(asked) // a second time would panic
			<-release
			return w.resume(ctx, route)
		}
	})
	id, port := w.add(paused), listen(t, echo)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r := w.request(t, http.MethodPost, "/", strings.NewReader(fmt.Sprint("body ", i)))
			forms["headers"](r, id, port)
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = response.Body.Close() }()
			body, _ := io.ReadAll(response.Body)
			if response.StatusCode != http.StatusOK || !strings.Contains(string(body), fmt.Sprint("body ", i)) {
				t.Errorf("got %d %s", response.StatusCode, body)
			}
		})
	}
	<-asked
	close(release)
	wg.Wait()
	if n := w.resumes(); n != 1 {
		t.Errorf("it was resumed %d times", n)
	}
}

// TestTheTableMayBeLate: it says for a moment that a sandbox runs which is paused by now.
func TestTheTableMayBeLate(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(func(r *routes.Route) { r.AutoResume = true }), listen(t, echo)
	w.lock.Lock()
	uid := w.table[id].UID
	w.running[uid] = false
	refusals := 0
	w.refused = func() {
		if refusals++; refusals == 2 {
			route := w.table[id]
			route.State = routes.Paused
			w.table[id] = route
		}
	}
	w.lock.Unlock()
	r := w.request(t, http.MethodPost, "/", strings.NewReader("the whole body"))
	forms["path"](r, id, port)
	if response, body := do(t, r); response.StatusCode != http.StatusOK || !strings.Contains(body, "the whole body") || w.resumes() != 1 {
		t.Errorf("got %d %s after %d resumes", response.StatusCode, body, w.resumes())
	}

	// And one that never learns is given up.
	id = w.add(func(r *routes.Route) { r.AutoResume = true })
	w.lock.Lock()
	w.running[w.table[id].UID] = false
	w.lock.Unlock()
	response, body := w.get(t, id, port)
	wantProblem(t, response, body, http.StatusBadGateway, "not running", id)
}

// TestAnotherReplicaHasResumedIt: the table says for a moment that it is paused.
func TestAnotherReplicaHasResumedIt(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(func(r *routes.Route) { r.State = routes.Paused }), listen(t, echo)
	w.change(id, func(r *routes.Route) { w.running[r.UID] = true })
	if response, body := w.get(t, id, port); response.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", response.StatusCode, body)
	}
}

func TestASandboxThatIsNotResumed(t *testing.T) {
	var refuse error
	w := newWorld(t, func(_ *world, o *proxy.Options) {
		o.ResumeTimeout = 100 * time.Millisecond
		o.Resume = func(ctx context.Context, _ routes.Route) error {
			if refuse == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			return refuse
		}
	})
	id, port := w.add(paused), listen(t, echo)
	response, body := w.get(t, id, port) // it is asked for, and does not come
	wantProblem(t, response, body, http.StatusServiceUnavailable, "does not run yet", id)
	if response.Header.Get("Retry-After") == "" {
		t.Error("it does not say when to come again")
	}
	refuse = errors.New("the quota of team-a at 10.0.0.1 is used up")
	response, body = w.get(t, id, port)
	wantProblem(t, response, body, http.StatusBadGateway, "not running", id)
	if strings.Contains(body, "10.0.0.1") {
		t.Errorf("the answer tells of the inside: %s", body)
	}
	refuse = fmt.Errorf("%w: away", routes.ErrUnavailable)
	response, body = w.get(t, id, port)
	wantProblem(t, response, body, http.StatusServiceUnavailable, "try again", id)
}

// TestOneWhoGoesEndsTheResumeThatNobodyWaitsFor.
func TestOneWhoGoesEndsTheResumeThatNobodyWaitsFor(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(_ *world, o *proxy.Options) {
		o.Resume = func(ctx context.Context, _ routes.Route) error {
			close(begun)
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		}
	})
	id, port := w.add(paused), listen(t, echo)
	ctx, cancel := context.WithCancel(t.Context())
	r := w.request(t, http.MethodGet, "/", nil).WithContext(ctx)
	forms["headers"](r, id, port)
	go func() {
		<-begun
		cancel()
	}()
	if response, err := http.DefaultTransport.RoundTrip(r); err == nil {
		_ = response.Body.Close()
		t.Error("the request was answered")
	}
	<-ended
}

func TestResumesAreBounded(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(w *world, o *proxy.Options) {
		o.MaxResumes = 4
		o.Resume = func(ctx context.Context, route routes.Route) error {
			w.lock.Lock()
			w.resumed = append(w.resumed, route.ID)
			w.lock.Unlock()
			<-release
			return w.resume(ctx, route)
		}
	})
	port := listen(t, echo)
	var wg sync.WaitGroup
	for i := range 2 { // half of the slots may be one team's
		id := w.add(paused)
		wg.Go(func() {
			r := w.request(t, http.MethodGet, "/", nil)
			forms["headers"](r, id, port)
			if response, err := http.DefaultTransport.RoundTrip(r); err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("got %v, %v", response, err)
			} else {
				_ = response.Body.Close()
			}
		})
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if n := w.resumes(); n != i+1 {
				return fmt.Errorf("%d are being resumed", n)
			}
			return nil
		})
	}
	id := w.add(paused)
	response, body := w.get(t, id, port)
	wantProblem(t, response, body, http.StatusTooManyRequests, "resumed", id)
	close(release)
	wg.Wait()
}

// TestResumeIsWaitedForOnce: the resume waits until the sandbox runs, and only its address is read after that.
func TestResumeIsWaitedForOnce(t *testing.T) {
	w := newWorld(t, nil)
	id, port := w.add(paused), listen(t, echo)
	if response, body := w.get(t, id, port); response.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", response.StatusCode, body)
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.resolved != 1 {
		t.Errorf("the sandbox is read %d times", w.resolved)
	}
}

// TestTheTableMayStayBehind: a sandbox that runs by now is reached, also where the watch does
// not say so.
func TestTheTableMayStayBehind(t *testing.T) {
	w := newWorld(t, func(w *world, o *proxy.Options) {
		o.Resume = func(_ context.Context, route routes.Route) error {
			w.lock.Lock()
			defer w.lock.Unlock()
			w.running[route.UID] = true
			return nil
		}
	})
	id, port := w.add(paused), listen(t, echo)
	if response, body := w.get(t, id, port); response.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", response.StatusCode, body)
	}
}
