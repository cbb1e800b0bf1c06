// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring serves health checks and metrics on ports of their own. Their clients are kubelets and Prometheus,
// but other pods may reach the ports too, so each port bounds its connections and what they take.
package monitoring

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sandlot-io/sandlot/pkg/connections"
)

const (
	// maxConnections is how many connections a port may have.
	maxConnections = 64
	// maxHeader is how many bytes the headers of a request may have, and maxFields how many fields. A token of a
	// ServiceAccount takes about 1 KiB.
	maxHeader, maxFields = 8 << 10, 50
	// headerTimeout is how long the headers of a request may take to arrive, and responseTimeout how long the whole
	// request may take, until the client has read the response.
	headerTimeout, responseTimeout = 10 * time.Second, time.Minute
	// idleTimeout is how long a connection may be without a request.
	idleTimeout = 2 * time.Minute
	// shutdownTimeout is how long requests may take to end when the server is stopped.
	shutdownTimeout = 5 * time.Second
)

// Enabled reports whether a bind address is one to serve on. An empty one and "0" disable a port.
func Enabled(address string) bool { return address != "" && address != "0" }

// NewServer listens on an address, and returns a server for it that serves requests with a handler, over TLS if config
// is not nil. The caller has to start it.
func NewServer(ctx context.Context, name, address string, config *tls.Config, handler http.Handler) (*manager.Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	listener = connections.NewPool(connections.Limits{Open: maxConnections}, connections.Metrics{}).Listener(listener)
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"http/1.1"} // each connection has one request at a time
		listener = tls.NewListener(listener, config)
	}
	timeout := shutdownTimeout
	return &manager.Server{
		Name: name, Listener: listener, ShutdownTimeout: &timeout,
		Server: &http.Server{
			Handler:           connections.Handler(handler, connections.HeaderLimits{Fields: maxFields, Bytes: maxHeader}),
			ReadHeaderTimeout: headerTimeout, ReadTimeout: responseTimeout, WriteTimeout: responseTimeout, IdleTimeout: idleTimeout,
			MaxHeaderBytes: maxHeader,
			ErrorLog:       connections.ErrorLog(klog.FromContext(ctx)),
		},
	}, nil
}
