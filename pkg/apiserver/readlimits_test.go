// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestReadLimits checks that a user whose lists or gets do not end is refused more, and that all else goes
// through: what others read, watches, and requests to sandboxes.
func TestReadLimits(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	type stands struct{}
	handler := withReadLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Context().Value(stands{}) != nil {
			began <- struct{}{}
			<-end
		}
	}))
	do := func(ctx context.Context, name, verb, subresource string) *httptest.ResponseRecorder {
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxes", Subresource: subresource,
		})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w
	}
	const eve = "system:serviceaccount:team:eve"
	var wait sync.WaitGroup
	for verb, n := range map[string]int{"list": maxListsOfUser, "get": maxGetsOfUser} {
		for range n {
			wait.Go(func() {
				if w := do(context.WithValue(t.Context(), stands{}, true), eve, verb, ""); w.Code != http.StatusOK {
					t.Errorf("%s within the limit: %d", verb, w.Code)
				}
			})
			<-began
		}
	}
	for _, tc := range []struct {
		name, verb, subresource string
		code                    int
	}{
		{eve, "list", "", http.StatusTooManyRequests},
		{eve, "get", "", http.StatusTooManyRequests},
		{eve, "get", "status", http.StatusTooManyRequests},
		{user.Anonymous, "get", "", http.StatusOK},                                     // as a probe
		{"system:serviceaccount:team:another", "list", "", http.StatusTooManyRequests}, // who can make one makes many
		{"system:serviceaccount:other:eve", "list", "", http.StatusOK},
		{"ann", "list", "", http.StatusOK},
		{"ann", "get", "", http.StatusOK},
		{eve, "watch", "", http.StatusOK},
		{eve, "get", "proxy", http.StatusOK},
	} {
		w := do(t.Context(), tc.name, tc.verb, tc.subresource)
		if w.Code != tc.code || tc.code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Errorf("%+v: %d, Retry-After %q", tc, w.Code, w.Header().Get("Retry-After"))
		}
	}
	close(end)
	wait.Wait()
	if w := do(t.Context(), eve, "list", ""); w.Code != http.StatusOK {
		t.Errorf("after the others have ended: %d", w.Code)
	}
}

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
	handler := withResponseDeadline(http.NotFoundHandler(), config, clocktesting.NewFakePassiveClock(now))
	for verb, want := range map[string]time.Time{"list": now.Add(time.Minute + responseGrace), "patch": now.Add(time.Minute + responseGrace), "watch": {}} {
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if len(w.at) != 1 || !w.at[0].Equal(want) {
			t.Errorf("%s: %v, want %v", verb, w.at, want)
		}
	}
}
