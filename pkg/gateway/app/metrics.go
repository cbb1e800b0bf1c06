// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sandlot-io/sandlot/pkg/gateway/server"
	"github.com/sandlot-io/sandlot/pkg/version"
)

var (
	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Name:           "build_info",
		Help:           "1, with the version of Sandlot that runs.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"version"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(buildInfo)
		buildInfo.WithLabelValues(version.Get()).Set(1)
	})
)

// serveMetrics serves what the platform asks for. ready returns why traffic has to wait.
func serveMetrics(ctx context.Context, address string, ready func() error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	return server.Serve(ctx, listener, nil, platform(ready))
}

func platform(ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", legacyregistry.Handler())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	return mux
}
