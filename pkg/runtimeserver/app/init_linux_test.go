// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/access"
)

// TestLargeInits: who has no token cannot fill the memory with bodies of /init. Other sources, and small bodies, get through.
func TestLargeInits(t *testing.T) {
	h := &handler{
		access: access.New(&clocktesting.FakePassiveClock{}), clock: &clocktesting.FakePassiveClock{},
		largeInits: fairness.NewSources(largeInits, largeInitsOfSource),
	}
	post := func(source string, body io.Reader) int {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, initPath, body)
		req.RemoteAddr = source + ":1000"
		w := httptest.NewRecorder()
		h.init(w, req)
		return w.Code
	}
	large := func() io.Reader {
		return strings.NewReader(strings.Repeat(" ", 2*initWithoutSlot) + `{"accessToken":"x"}`)
	}
	var posts sync.WaitGroup
	var bodies []*io.PipeWriter
	for range largeInitsOfSource {
		body, writer := io.Pipe()
		posts.Go(func() {
			if status := post("192.0.2.1", body); status != http.StatusBadRequest {
				t.Errorf("a body that ends early: %d", status)
			}
		})
		if _, err := writer.Write([]byte(strings.Repeat(" ", 2*initWithoutSlot))); err != nil { // it returns when that was read
			t.Fatal(err)
		}
		bodies = append(bodies, writer)
	}
	if status := post("192.0.2.1", large()); status != http.StatusServiceUnavailable {
		t.Errorf("one large body more: %d", status)
	}
	if status := post("192.0.2.2", large()); status != http.StatusNoContent {
		t.Errorf("from another source: %d", status)
	}
	if status := post("192.0.2.1", strings.NewReader(`{"accessToken":"x"}`)); status != http.StatusNoContent {
		t.Errorf("a small body: %d", status)
	}
	for _, body := range bodies {
		_ = body.Close() // never fails
	}
	posts.Wait()
	if status := post("192.0.2.1", large()); status != http.StatusNoContent {
		t.Errorf("when the others have ended: %d", status)
	}
}
