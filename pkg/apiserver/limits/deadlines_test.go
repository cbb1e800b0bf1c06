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
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

// TestRequestsThatAreGivenUp: a request that is handled when the handlers around have returned, as after a time in a
// queue, does not use its writer, which HTTP/2 has taken back. The race detector sees uses that do no harm by chance.
func TestRequestsThatAreGivenUp(t *testing.T) {
	never := func(*http.Request, *request.RequestInfo) bool { return false }
	config := &genericapiserver.Config{RequestTimeout: time.Minute, LongRunningFunc: never}
	respond := WithResponseDeadline(http.NotFoundHandler(), config, clock.RealClock{})
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
