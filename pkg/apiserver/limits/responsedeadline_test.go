// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	clocktesting "k8s.io/utils/clock/testing"
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
	config := &genericapiserver.Config{RequestTimeout: time.Minute, LongRunningFunc: func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }}
	clock := clocktesting.NewFakePassiveClock(now)
	handler := withDeadlines(WithResponseDeadline(http.NotFoundHandler(), config, clock), config.RequestTimeout, clock)
	for verb, want := range map[string]time.Time{"list": now.Add(time.Minute + responseGrace), "patch": now.Add(time.Minute + responseGrace), "watch": {}} {
		w := &deadlineRecorder{ResponseWriter: httptest.NewRecorder()}
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if len(w.at) == 0 || !w.at[len(w.at)-1].Equal(want) {
			t.Errorf("%s: %v, want %v", verb, w.at, want)
		}
	}
}
