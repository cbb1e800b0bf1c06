// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// once lets do happen once, before the next request of a method whose path ends so.
func (w *world) once(method, end string, do func() error) {
	w.Helper()
	var done atomic.Bool
	before := func(r *http.Request) error {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, end) || done.Swap(true) {
			return nil
		}
		return do()
	}
	w.before.Store(&before)
	w.Cleanup(func() {
		w.before.Store(nil)
		if !done.Load() {
			w.Errorf("there was no %s of %s", method, end)
		}
	})
}

// TestChangesInBetween: what a request does is decided by the sandbox as it is when that is
// written, not as it was a moment before.
func TestChangesInBetween(t *testing.T) {
	all := newWorld(t)
	all.pool("team", "base", 5) // one for each case
	key := all.key("team")
	pauses, notes := `{"spec":{"paused":true}}`, `{"metadata":{"annotations":{"seen":"true"}}}`
	for name, tc := range map[string]struct {
		method, call, body string
		code               int
		patch              string
		state              mapping.E2BState
	}{
		"timeout of one that was paused": {"PATCH", "/timeout", `{"timeout":600}`, http.StatusConflict, pauses, mapping.StatePaused},
		"timeout of one that changed":    {"PATCH", "/timeout", `{"timeout":600}`, http.StatusNoContent, notes, mapping.StateRunning},
		"connect to one that was paused": {"PATCH", "/connect", `{"timeout":600}`, http.StatusCreated, pauses, mapping.StateRunning},
		"pause of one that was paused":   {"PATCH", "/pause", ``, http.StatusConflict, pauses, mapping.StatePaused},
		"kill of one that changed":       {"DELETE", "", ``, http.StatusNoContent, notes, ""},
	} {
		t.Run(name, func(t *testing.T) {
			one := *all
			one.T = t
			w := &one
			id := w.create(key, `{"templateID":"base"}`)
			sb := w.sandbox(id)
			w.once(tc.method, "/sandboxes/"+sb.Name, func() error {
				sandboxes := w.server.Client.AgentsV1alpha1().Sandboxes("team")
				_, err := sandboxes.Patch(w.Context(), sb.Name, types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{})
				if err != nil || tc.state != mapping.StatePaused {
					return err
				}
				return wait.PollUntilContextTimeout(w.Context(), 10*time.Millisecond, expect.Patience, true, func(ctx context.Context) (bool, error) {
					paused, err := sandboxes.Get(ctx, sb.Name, metav1.GetOptions{})
					return err == nil && mapping.IsPaused(paused), err
				})
			})
			method := http.MethodPost
			if tc.call == "" {
				method = http.MethodDelete
			}
			w.want(tc.code, key, method, "/sandboxes/"+id+tc.call, "/sandboxes/{id}"+tc.call, tc.body)
			if tc.state == "" {
				w.want(http.StatusNotFound, key, "GET", "/sandboxes/"+id, "/sandboxes/{id}", "")
				return
			}
			if state := w.info(key, id).State; state != tc.state {
				t.Errorf("it is %s", state)
			}
			w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
		})
	}
}

// TestLostAnswers: what was only read is read again, and a create does not fail by it.
func TestLostAnswers(t *testing.T) {
	all := newWorld(t)
	all.pool("team", "base", 2)
	key := all.key("team")
	lost := func() error { return io.ErrUnexpectedEOF }
	id := ""
	all.Run("the token", func(t *testing.T) {
		one := *all
		one.T = t
		var first, again mapping.SandboxResponse
		body := `{"templateID":"base"}`
		one.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k").into(t, &first)
		one.once("POST", "/runtimeaccess", lost) // which a repeated create asks for
		one.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k").into(t, &again)
		if again.SandboxID != first.SandboxID || again.EnvdAccessToken != first.EnvdAccessToken || again.EnvdAccessToken == "" {
			t.Errorf("the create was answered with %+v, repeated with %+v", first, again)
		}
		id = first.SandboxID
	})
	all.Run("the state of one that is being paused", func(t *testing.T) {
		one := *all
		one.T = t
		one.once("GET", "/sandboxes/"+one.sandbox(id).Name, lost)
		one.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/pause", "/sandboxes/{id}/pause", ``)
	})
}

// TestCreateIsOneRequest: the answer to the claim has the access token.
func TestCreateIsOneRequest(t *testing.T) {
	w := newWorld(t)
	w.pool("team", "base", 1)
	key := w.key("team")
	var mu sync.Mutex
	var asked []string
	before := func(r *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		return nil
	}
	w.before.Store(&before)
	var made mapping.SandboxResponse
	w.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", `{"templateID":"base"}`).into(t, &made)
	w.before.Store(nil)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"POST /apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxclaims"}; !slices.Equal(asked, want) {
		t.Errorf("a create asks %v, want %v", asked, want)
	}
	if token := w.info(key, made.SandboxID).EnvdAccessToken; token == "" || token != made.EnvdAccessToken {
		t.Errorf("the create tells the token %q, a get %q", made.EnvdAccessToken, token)
	}
}

// TestWaitsAtOnce: a request that waits for a sandbox takes no slot from others of its team.
// If too many requests wait, a request still has its effect, and is answered with 503.
func TestWaitsAtOnce(t *testing.T) {
	w := newWorld(t, func(o *e2b.Options) { o.MaxAPIRequests = 2 }) // of which a team alone has one
	w.pool("team", "base", 2)
	key := w.key("team")
	first, second := w.create(key, `{"templateID":"base"}`), w.create(key, `{"templateID":"base"}`)
	const pause = "/sandboxes/{id}/pause"
	for _, id := range []string{first, second} {
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/pause", pause, ``)
	}
	name := w.sandbox(first).Name
	waits, goOn := make(chan struct{}, 1), make(chan struct{})
	before := func(r *http.Request) error {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/sandboxes/"+name) {
			select {
			case waits <- struct{}{}:
			default:
			}
			<-goOn
		}
		return r.Context().Err()
	}
	w.before.Store(&before)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		w.want(http.StatusCreated, key, "POST", "/sandboxes/"+first+"/connect", "/sandboxes/{id}/connect", ``)
	})
	<-waits
	w.info(key, second)
	if a := w.want(http.StatusServiceUnavailable, key, "POST", "/sandboxes/"+second+"/connect", "/sandboxes/{id}/connect", ``); a.header.Get("Retry-After") == "" {
		t.Error("it does not say when to come again")
	}
	if w.sandbox(second).Spec.Paused {
		t.Error("a sandbox for which nothing may wait is not resumed")
	}
	w.before.Store(nil)
	close(goOn)
	waiting.Wait()
}

// TestCreatesThatWaitAtOnce: nor does a create that waits for a sandbox. If too many requests wait, a create
// that may have to wait is refused.
func TestCreatesThatWaitAtOnce(t *testing.T) {
	w := newWorld(t, func(o *e2b.Options) { o.MaxAPIRequests = 2 }) // of which a team alone has one
	w.pool("team", "base", 0)
	key := w.key("team")
	const path, body = "/sandboxes", `{"templateID":"base","metadata":{"e2b.agents.kruise.io/claim-timeout-seconds":"300"}}`
	answers := w.askLater(key, body)
	w.awaitClaim("team")
	w.want(http.StatusOK, key, "GET", path, path, "")
	if a := w.want(http.StatusTooManyRequests, key, "POST", path, path, body); a.header.Get("Retry-After") == "" {
		t.Error("it does not say when to come again")
	}
	w.stock("team")
	if a := <-answers; a.code != http.StatusCreated {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestListsAtOnce: lists have slots of their own, so that no team keeps all memory with them.
func TestListsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.pool("team", "base", 1)
	key, other := w.key("team"), w.key("other")
	w.create(key, `{"templateID":"base"}`)
	const path = "/v2/sandboxes"
	reads, goOn := make(chan struct{}), make(chan struct{})
	before := func(r *http.Request) error {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/team/sandboxes") {
			reads <- struct{}{}
			<-goOn
		}
		return r.Context().Err()
	}
	w.before.Store(&before)
	var asking sync.WaitGroup
	for range e2b.ListsPerTeam {
		asking.Go(func() { w.want(http.StatusOK, key, "GET", path, path, "") })
	}
	for range e2b.ListsPerTeam {
		<-reads
	}
	for _, busy := range []string{path, "/sandboxes", "/templates", "/api-keys"} {
		if a := w.ask(key, "GET", busy, busy, ""); a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, to come again after %q s", busy, a.code, a.header.Get("Retry-After"))
		}
	}
	w.want(http.StatusOK, other, "GET", path, path, "")
	w.want(http.StatusOK, key, "GET", "/templates/base", "/templates/{id}", "")
	w.before.Store(nil)
	close(goOn)
	asking.Wait()
	w.want(http.StatusOK, key, "GET", path, path, "")
}
