// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

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
