// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sandlot-io/sandlot/pkg/monitoring"
)

// serveHealth serves /healthz and /readyz for the kubelet. ready returns an error if the gateway is not ready.
func serveHealth(ctx context.Context, address string, ready func() error) error {
	server, err := monitoring.NewServer(ctx, "health", address, nil, health(ready))
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	return server.Start(ctx)
}

func health(ready func() error) http.Handler {
	mux := http.NewServeMux()
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
