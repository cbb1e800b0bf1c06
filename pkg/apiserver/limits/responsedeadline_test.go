// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// deadlineRecorder is a response whose deadlines are noted.
type deadlineRecorder struct {
	http.ResponseWriter
	at []time.Time
}

// SetWriteDeadline is called by http.ResponseController.
func (d *deadlineRecorder) SetWriteDeadline(at time.Time) error {
	d.at = append(d.at, at)
	return nil
}

// TestResponseDeadline checks that each response has a deadline, except for those of long-running requests.
func TestResponseDeadline(t *testing.T) {
	now := time.Unix(1e9, 0)
	isLongRunning := func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }
	clock := clocktesting.NewFakePassiveClock(now)
	handler := withDeadlines(WithResponseDeadline(http.NotFoundHandler(), isLongRunning, clock), time.Minute, clock)
	for verb, want := range map[string]time.Time{"list": now.Add(time.Minute + responseGrace), "patch": now.Add(time.Minute + responseGrace), "watch": {}} {
		w := &deadlineRecorder{ResponseWriter: httptest.NewRecorder()}
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if len(w.at) == 0 || !w.at[len(w.at)-1].Equal(want) {
			t.Errorf("%s: %v, want %v", verb, w.at, want)
		}
	}
}

// TestRequestsThatAreGivenUp: a request that is handled when the handlers around have returned, as after a time in a
// queue, does not use its writer, which HTTP/2 has taken back. The race detector sees uses that do no harm by chance.
func TestRequestsThatAreGivenUp(t *testing.T) {
	never := func(*http.Request, *request.RequestInfo) bool { return false }
	respond := WithResponseDeadline(http.NotFoundHandler(), never, clock.RealClock{})
	for name, late := range map[string]http.HandlerFunc{
		"responses": respond.ServeHTTP,
		"bodies": func(_ http.ResponseWriter, req *http.Request) {
			body := &slowBody{slots: fairness.NewSlots(1, 1), req: req, deadline: past}
			body.begin()
			body.end(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun, returned, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			handler := withDeadlines(genericfilters.WithTimeoutForNonLongRunningRequests(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				defer func() {
					var err error
					if panicked := recover(); panicked != nil {
						err = fmt.Errorf("it panics: %v", panicked)
					}
					result <- err
				}()
				close(begun)
				<-returned
				late(w, req)
			}), never), time.Minute, clock.RealClock{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				defer close(returned)
				handler.ServeHTTP(w, req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{Verb: "list"})))
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			go func() {
				<-begun
				giveUp()
			}()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := server.Client().Do(req); err == nil {
				_ = resp.Body.Close()
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}
