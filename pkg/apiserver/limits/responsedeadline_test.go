// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	clocktesting "k8s.io/utils/clock/testing"
)

// deadlines is a response whose deadlines are noted.
type deadlines struct {
	http.ResponseWriter
	at []time.Time
}

// SetWriteDeadline is called by http.ResponseController.
func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.at = append(d.at, at)
	return nil
}

// TestResponseDeadline checks that each response has a deadline, except for those of long-running requests.
func TestResponseDeadline(t *testing.T) {
	now := time.Unix(1e9, 0)
	config := &genericapiserver.Config{RequestTimeout: time.Minute, LongRunningFunc: func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }}
	handler := WithResponseDeadline(http.NotFoundHandler(), config, clocktesting.NewFakePassiveClock(now))
	for verb, want := range map[string]time.Time{"list": now.Add(time.Minute + responseGrace), "patch": now.Add(time.Minute + responseGrace), "watch": {}} {
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if len(w.at) != 1 || !w.at[0].Equal(want) {
			t.Errorf("%s: %v, want %v", verb, w.at, want)
		}
	}
}

// TestRequestsThatAreGivenUp: a request that is handled when the handlers around have returned, as after a time in a
// queue, does not use its writer, which HTTP/2 has taken back.
func TestRequestsThatAreGivenUp(t *testing.T) {
	config := &genericapiserver.Config{RequestTimeout: time.Minute, LongRunningFunc: func(*http.Request, *request.RequestInfo) bool { return false }}
	for _, given := range []string{"before", "meanwhile"} {
		ctx, giveUp := context.WithCancel(request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "list"}))
		w := &takenBack{ResponseWriter: httptest.NewRecorder()}
		handled := false
		end := func() { w.isTakenBack = true; giveUp() }
		handler := WithResponseDeadline(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			handled = true
			end()
		}), config, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
		if given == "before" {
			end()
		}
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		req.ProtoMajor = 2
		handler.ServeHTTP(w, req)
		if !handled {
			t.Errorf("given up %s: it is not handled", given)
		}
	}
}

// takenBack is a writer as that of HTTP/2, which panics when it is taken back.
type takenBack struct {
	http.ResponseWriter
	isTakenBack bool
}

// SetWriteDeadline is called by http.ResponseController.
func (w *takenBack) SetWriteDeadline(time.Time) error { return w.FlushError() }

// FlushError is called by http.ResponseController.
func (w *takenBack) FlushError() error {
	if w.isTakenBack {
		panic("the writer is used after its handler")
	}
	return nil
}
