// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// TestMetricsFlood: a flood of bad tokens costs few reviews, which take nothing from the limit
// of the program that serves the metrics. The cluster answers no review here; who may read
// metrics is tested in pkg/e2e/cluster.
func TestMetricsFlood(t *testing.T) {
	var reviews atomic.Int32
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			t.Errorf("asked for %s", r.URL)
		}
		reviews.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer cluster.Close()
	programs := flowcontrol.NewTokenBucketRateLimiter(1e-4, 1)
	metrics, err := Metrics(logr.Discard(), &rest.Config{Host: cluster.URL, RateLimiter: programs}, cluster.Client(),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") }), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(token string) int {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		metrics.ServeHTTP(w, req)
		return w.Code
	}
	if code := get(""); code != http.StatusUnauthorized || reviews.Load() != 0 {
		t.Errorf("without a token: %d after %d reviews", code, reviews.Load())
	}
	const flood = 500
	began := time.Now()
	var codes [600]atomic.Int32
	var all sync.WaitGroup
	for i := range flood {
		all.Go(func() { codes[get(fmt.Sprint("bad", i))].Add(1) })
	}
	all.Wait()
	refused, asked := int(codes[http.StatusTooManyRequests].Load()), int(codes[http.StatusUnauthorized].Load())
	if refused+asked != flood || asked == 0 {
		t.Errorf("%d of %d refused, %d bad", refused, flood, asked)
	}
	took := time.Since(began)
	if most := badTokensAtOnce + maxAtOnceOfSource + int(badTokensPerSecond*took.Seconds()) + 1; int(reviews.Load()) > most {
		t.Errorf("%d reviews in %s, want at most %d", reviews.Load(), took, most)
	}
	if most := reviewsAtOnce + int(reviewsPerSecond*took.Seconds()) + 1; int(reviews.Load()) > most {
		t.Errorf("%d reviews in %s, beyond their limit of %d", reviews.Load(), took, most)
	}
	if !programs.TryAccept() {
		t.Error("the flood has used up the requests of the program")
	}
}
