// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAbortedCreateGivesBack: a create whose client goes away while the API server works on the claim gives
// the sandbox back, also if the sandbox is there at once.
func TestAbortedCreateGivesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("team")
	w.pool("team", "base", 1)
	ctx, cancel := context.WithCancel(t.Context())
	var givenBack atomic.Bool
	before := func(r *http.Request) error {
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxclaims"):
			cancel()
		case r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/sandboxclaims/"):
			givenBack.Store(true)
		}
		return t.Context().Err()
	}
	w.before.Store(&before)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/sandboxes", strings.NewReader(`{"templateID":"base"}`))
	r.Header.Set("X-API-Key", key)
	response := httptest.NewRecorder()
	if w.api.ServeHTTP(response, r); response.Code == http.StatusCreated {
		t.Error("the create was answered")
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if !givenBack.Load() {
			return errors.New("the claim is still there")
		}
		return nil
	})
}
