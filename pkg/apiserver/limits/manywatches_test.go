// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestManyWatches: one user has at most half of the watches, and others still get some. A watch keeps only those
// headers that the generic handler reads.
func TestManyWatches(t *testing.T) {
	const most = 10
	began, end := make(chan []string), make(chan struct{})
	handler := WithWatchLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		began <- slices.Sorted(maps.Keys(req.Header))
		<-end
	}), WatchLimits{UserBytes: 1 << 20, Bytes: 1 << 20, WriteTimeout: time.Hour, Watches: most})
	do := func(name string) int {
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: name})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: "watch", APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxes",
		})
		req, w := httptest.NewRequestWithContext(ctx, http.MethodGet, "/?watch=1", http.NoBody), httptest.NewRecorder()
		req.Header = http.Header{"Accept": {"application/json"}, "User-Agent": {"test"}, "Authorization": {"Bearer x"}}
		for i := range 100 {
			req.Header.Set(fmt.Sprint("X", i), "")
		}
		handler.ServeHTTP(w, req)
		return w.Code
	}
	var wait sync.WaitGroup
	watch := func(name string) {
		wait.Go(func() {
			if code := do(name); code != http.StatusOK {
				t.Errorf("a watch of %s is answered with %d", name, code)
			}
		})
		if kept := <-began; !slices.Equal(kept, []string{"Accept", "User-Agent"}) {
			t.Errorf("a watch keeps %q", kept)
		}
	}
	for range most / 2 {
		watch("system:serviceaccount:team:eve")
	}
	if code := do("system:serviceaccount:team:another"); code != http.StatusTooManyRequests {
		t.Errorf("one more watch is answered with %d", code)
	}
	watch("ann")
	close(end)
	wait.Wait()
	end = make(chan struct{})
	watch("system:serviceaccount:team:eve")
	close(end)
	wait.Wait()
}
