// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestUpgradeLimits: upgraded requests of a namespace take at most a quarter of the connections, and those of all at
// most half. Others are not affected, and nothing but a sandbox is asked for another protocol.
func TestUpgradeLimits(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	type stands struct{}
	const noProtocol = "none" // kube-apiserver opens a connection for it as well
	handler := WithUpgradeLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Context().Value(stands{}) != nil {
			began <- struct{}{}
			<-end
		}
	}), 16)
	do := func(ctx context.Context, method, namespace, subresource, upgrade string) int {
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Namespace: namespace, Resource: "sandboxes", Subresource: subresource,
		})
		req := httptest.NewRequestWithContext(ctx, method, "/", nil)
		switch upgrade {
		case "":
		case noProtocol:
			req.Header.Set("Connection", "Upgrade")
		default:
			req.Header.Set("Connection", "keep-alive, Upgrade")
			req.Header.Set("Upgrade", upgrade)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		return w.Code
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if code := do(context.WithValue(t.Context(), stands{}, true), http.MethodGet, "evil", "proxy", "websocket"); code != http.StatusOK {
				t.Errorf("within the limit: %d", code)
			}
		})
		<-began
	}
	for _, tc := range []struct {
		method, namespace, subresource, upgrade string
		code                                    int
	}{
		{http.MethodGet, "evil", "proxy", "websocket", http.StatusTooManyRequests},
		{http.MethodPost, "evil", "proxy", "foo", http.StatusTooManyRequests},
		{http.MethodGet, "evil", "proxy", noProtocol, http.StatusTooManyRequests},
		{http.MethodPost, "good", "", noProtocol, http.StatusBadRequest},
		{http.MethodGet, "evil", "proxy", "", http.StatusOK},
		{http.MethodGet, "good", "proxy", "websocket", http.StatusOK},
		{http.MethodPost, "good", "", "foo", http.StatusBadRequest},
		{http.MethodGet, "good", "status", "websocket", http.StatusBadRequest},
		{http.MethodPost, "evil", "", "", http.StatusOK},
	} {
		if code := do(t.Context(), tc.method, tc.namespace, tc.subresource, tc.upgrade); code != tc.code {
			t.Errorf("%+v: %d", tc, code)
		}
	}
	close(end)
	wait.Wait()
	if code := do(t.Context(), http.MethodGet, "evil", "proxy", "websocket"); code != http.StatusOK {
		t.Errorf("after the others have ended: %d", code)
	}
}
