// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
)

// TestLargeAnswersAtOnce: a team reads half of the large answers at a time that there may be. What
// it asks for beyond that is not kept in memory while it waits, does not hold up small answers,
// and not large ones of other teams. All is answered in the end.
func TestLargeAnswersAtOnce(t *testing.T) {
	w := newWorld(t)
	key, other := w.key("team"), w.key("other")
	name := w.largeSets("team", 1)[0]
	w.largeSets("other", 1)
	w.pool("team", "small", 0)

	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	open, large := map[*http.Request]bool{}, map[*http.Request]bool{}
	asked := 0
	goOn := make(chan struct{})
	ofTeam := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/team/sandboxsets/large") }
	read := func(r *http.Request, bytes int) error {
		if !ofTeam(r) {
			return r.Context().Err()
		}
		mu.Lock()
		if !open[r] {
			asked++
		}
		open[r] = true
		isLarge := bytes > e2b.SmallResponse
		if isLarge {
			large[r] = true
		}
		changed.Broadcast()
		mu.Unlock()
		if isLarge {
			<-goOn
		}
		return r.Context().Err()
	}
	closed := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		delete(open, r)
		changed.Broadcast()
	}
	w.read.Store(&read)
	w.closed.Store(&closed)
	const requests, share = e2b.LargeAtOnce + 8, e2b.LargeAtOnce / 2
	var asking sync.WaitGroup
	for range requests {
		asking.Go(func() { w.want(http.StatusOK, key, "GET", "/templates/"+name, "/templates/{id}", "") })
	}
	gaveUp := false
	giveUp := time.AfterFunc(time.Minute, func() {
		mu.Lock()
		defer mu.Unlock()
		gaveUp = true
		changed.Broadcast()
	})
	mu.Lock()
	for !gaveUp && (asked < requests || len(large) < share || len(open) > share) {
		changed.Wait()
	}
	if len(open) != share || len(large) != share {
		t.Errorf("%d answers are open and %d large ones are read, want %d", len(open), len(large), share)
	}
	mu.Unlock()
	giveUp.Stop()
	w.want(http.StatusOK, key, "GET", "/templates/small", "/templates/{id}", "")
	w.want(http.StatusOK, other, "GET", "/templates/"+name, "/templates/{id}", "")
	close(goOn)
	asking.Wait()
	if held := w.api.LargeResponses(); held != 0 {
		t.Errorf("%d slots are still taken", held)
	}
}

// TestLargeAnswersHavePlaces: whatever is done with a large sandbox, no large answer of the API
// server is read without a slot, and no list without a limit.
func TestLargeAnswersHavePlaces(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	name := w.largeSets("team", 1)[0]
	w.scale("team", name, 1)
	id := w.create(key, `{"templateID":"`+name+`"}`)
	sandbox := w.sandbox(id)

	var mu sync.Mutex
	larges := map[string]int{}
	read := func(r *http.Request, bytes int) error {
		if bytes > e2b.SmallResponse {
			mu.Lock()
			defer mu.Unlock()
			larges[r.Method]++
			if w.api.LargeResponses() == 0 {
				t.Errorf("%s %s: %d bytes are read without a slot", r.Method, r.URL, bytes)
			}
		}
		return nil
	}
	w.read.Store(&read)
	before := func(r *http.Request) error {
		isList := r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/sandboxes") || strings.HasSuffix(r.URL.Path, "/sandboxsets"))
		if isList && r.URL.Query().Get("limit") == "" {
			t.Errorf("%s has no limit", r.URL)
		}
		return r.Context().Err()
	}
	w.before.Store(&before)
	for _, tc := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/sandboxes/{id}", "", http.StatusOK},
		{"GET", "/sandboxes", "", http.StatusOK},
		{"GET", "/v2/sandboxes", "", http.StatusOK},
		{"GET", "/templates", "", http.StatusOK},
		{"POST", "/sandboxes/{id}/timeout", `{"timeout":100}`, http.StatusNoContent},
		{"POST", "/sandboxes/{id}/refreshes", `{"duration":200}`, http.StatusNoContent},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":300}`, http.StatusOK},
		{"POST", "/sandboxes/{id}/pause", ``, http.StatusNoContent},
		{"POST", "/sandboxes/{id}/resume", `{}`, http.StatusCreated},
		{"POST", "/sandboxes/{id}/pause", ``, http.StatusNoContent},
		{"POST", "/sandboxes/{id}/connect", `{}`, http.StatusCreated},
		{"POST", "/sandboxes/{id}/pause", ``, http.StatusNoContent},
	} {
		w.want(tc.want, key, tc.method, strings.Replace(tc.path, "{id}", id, 1), tc.path, tc.body)
	}
	client, err := w.clients("team")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.api.Resume(t.Context(), client.AgentsV1alpha1(), id, sandbox.Name, sandbox.UID); err != nil {
		t.Error(err)
	}
	w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
	mu.Lock()
	defer mu.Unlock()
	if larges[http.MethodGet] == 0 || larges[http.MethodPatch] == 0 {
		t.Errorf("large answers by method: %v", larges)
	}
}
