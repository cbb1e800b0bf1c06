// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestGiveBackThatFails: a create without a response is counted if its claim may be left.
func TestGiveBackThatFails(t *testing.T) {
	metrics.NewKubeRegistry().MustRegister(e2b.GiveBacksFailed)
	w := newWorld(t)
	key := w.key("team")
	w.pool("team", "base", 1)
	refused := &tls.CertificateVerificationError{Err: errors.New("in the test")} // is not repeated
	for name, fails := range map[string]func(*http.Request) bool{
		"with a sandbox": func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/release") },
		"not known":      func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/sandboxclaims") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			before := func(r *http.Request) error {
				if strings.HasSuffix(r.URL.Path, "/sandboxclaims") {
					leave()
				}
				if fails(r) {
					return refused
				}
				return nil
			}
			w.before.Store(&before)
			defer w.before.Store(nil)
			was, err := testutil.GetCounterMetricValue(e2b.GiveBacksFailed)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/sandboxes", strings.NewReader(`{"templateID":"base"}`))
			r.Header.Set("X-API-Key", key)
			w.api.ServeHTTP(httptest.NewRecorder(), r)
			if is, err := testutil.GetCounterMetricValue(e2b.GiveBacksFailed); is != was+1 || err != nil {
				t.Errorf("%v are counted, %v", is-was, err)
			}
		})
	}
}

// TestCleanupIsLimited: all that a create does for a client that is gone ends in CleanupTimeout.
func TestCleanupIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		hangs := func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				leave()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
		}
		api, key := newAPIOf(t, &rest.Config{WrapTransport: hangs})
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/sandboxes", strings.NewReader(`{"templateID":"base"}`))
		r.Header.Set("X-API-Key", key)
		began := time.Now()
		api.ServeHTTP(httptest.NewRecorder(), r)
		if took := time.Since(began); took > e2b.CleanupTimeout || took == 0 {
			t.Errorf("it ends after %s, and the limit is %s", took, e2b.CleanupTimeout)
		}
	})
}

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
