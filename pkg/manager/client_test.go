// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
)

// The requests of all clients count against one limit, but not those that keep the lease.
func TestClientsShareALimit(t *testing.T) {
	o := *NewOptions()
	cfg := clientConfig(&rest.Config{Host: "https://localhost:1"}, o)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	limiter := client.CoreV1().RESTClient().GetRateLimiter()
	if limiter == nil || limiter.QPS() != kubeAPIQPS || client.NetworkingV1().RESTClient().GetRateLimiter() != limiter {
		t.Errorf("the limiters are %v and %v", limiter, client.NetworkingV1().RESTClient().GetRateLimiter())
	}
	if lease := unlimited(cfg); lease.RateLimiter != nil || lease.QPS >= 0 || cfg.RateLimiter == nil {
		t.Errorf("the client of the lease is limited: %v, %v", lease.RateLimiter, lease.QPS)
	}
	o.KubeAPIQPS, o.KubeAPIBurst = 0, 0
	if cfg := clientConfig(&rest.Config{QPS: 1}, o); cfg.RateLimiter != nil || cfg.QPS >= 0 {
		t.Errorf("without a limit there is %v, %v", cfg.RateLimiter, cfg.QPS)
	}
}

// A flood of bad tokens at the metrics takes nothing from what the controllers ask.
func TestMetricsKeepToTheirLimit(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer cluster.Close()
	o := *NewOptions()
	o.KubeAPIQPS, o.KubeAPIBurst = 1e-4, 1
	cfg := clientConfig(&rest.Config{Host: cluster.URL}, o)
	served, err := metricsOptions(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := served.FilterProvider(cfg, cluster.Client())
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := filter(logr.Discard(), http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int]int{}
	for i := range 100 {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		req.Header.Set("Authorization", fmt.Sprint("Bearer bad", i))
		w := httptest.NewRecorder()
		metrics.ServeHTTP(w, req)
		codes[w.Code]++
	}
	if codes[http.StatusUnauthorized] == 0 || codes[http.StatusTooManyRequests] == 0 || len(codes) != 2 {
		t.Errorf("a flood of bad tokens is answered with %v", codes)
	}
	if !cfg.RateLimiter.TryAccept() {
		t.Error("the flood has used up the requests of the controllers")
	}
}

// TestCreatesAreNotRepeated: a create of a sandbox that is rejected for the moment holds no worker,
// and its error says when to try again.
func TestCreatesAreNotRepeated(t *testing.T) {
	var requests atomic.Int32
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		status := apierrors.NewTooManyRequests("etcd is nearly full", 7).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer cluster.Close()
	agents, err := versioned.NewForConfig(clientConfig(&rest.Config{Host: cluster.URL}, *NewOptions()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = agents.AgentsV1alpha1().Sandboxes("team").Create(t.Context(), &v1alpha1.Sandbox{}, metav1.CreateOptions{})
	if wait, ok := apierrors.SuggestsClientDelay(err); !ok || wait != 7 || requests.Load() != 1 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
}
