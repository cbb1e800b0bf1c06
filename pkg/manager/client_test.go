// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
