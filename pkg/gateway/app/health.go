// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/sandlot-io/sandlot/pkg/gateway/server"
)

// maxProbes is how many connections there may be to the port of health, or to that of metrics.
const maxProbes = 64

// serveHealth serves /healthz and /readyz for the kubelet. ready returns an error if the gateway is not ready.
func serveHealth(ctx context.Context, address string, ready func() error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	return server.ServeListener(ctx, server.NewConnectionPool(maxProbes).Listener(listener), nil, health(ready))
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
