// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
)

const (
	// headerTimeout is how long the headers of a request may take to arrive.
	headerTimeout = 10 * time.Second
	// maxHeader is how many bytes the headers of a request may have together. headersWithoutSlot is how many may
	// be received of them on any number of connections at a time. For more, a connection needs one of
	// largeHeaders slots, of which a source has at most a quarter.
	maxHeader, headersWithoutSlot, largeHeaders = 32 << 10, 4 << 10, 512
	// idleTimeout is how long a connection may be without a request.
	idleTimeout = 2 * time.Minute
	// drainTimeout is how long requests may take to end when the server ends.
	drainTimeout = 20 * time.Second
	// cutTimeout is how long handlers may take to return after their connections were cut. Creates have
	// time to give their sandboxes back.
	cutTimeout = e2b.CleanupTimeout + 2*time.Second
	// responseStallTimeout: after the handler returns, the client must read something of the response
	// within this time.
	responseStallTimeout = time.Minute
	// bodyTimeout: after the handler returns, the rest of the request body must arrive within this time.
	bodyTimeout = 15 * time.Second
	// maxStreams is how many requests one connection of HTTP/2 may have at a time.
	maxStreams = 250
	// streamBuffer is how many bytes of the body of a request of HTTP/2 the server keeps before the handler
	// reads them. With that, a request that is forwarded takes up to 100 KiB.
	streamBuffer = 64 << 10
	// maxFrame is how many bytes a frame of HTTP/2 may have, the least that the protocol allows. net/http allocates a
	// frame when it knows its length, and keeps that buffer as long as the connection is open.
	maxFrame = 16 << 10
	// maxUnread is how many responses of HTTP/2 may be unread for unreadAfter. A source has at most a quarter.
	maxUnread, unreadAfter = 8192, 2 * time.Second
	// responseGrace is how long a connection is not closed for another after its last request was handled.
	responseGrace = time.Second
)

// headerLimits are those of a request.
var headerLimits = connections.HeaderLimits{Fields: 100, Bytes: maxHeader}

// newConnectionPool returns a pool for connections of clients that are not known.
func newConnectionPool(maxOpen int) *connections.Pool {
	return connections.NewPool(
		connections.Limits{
			Open: maxOpen, ResponseGrace: responseGrace,
			LargeHeaders: fairness.NewSources(largeHeaders, largeHeaders/4), WithoutSlot: headersWithoutSlot,
			Unread: connections.UnreadLimits{Slots: fairness.NewSources(maxUnread, maxUnread/4), After: unreadAfter},
		},
		connections.Metrics{Open: connectionsOpen, Refused: connectionsRefused, Evicted: connectionsEvicted, LargeHeaders: largeHeadersRefused, Unread: unreadClosed},
	)
}

// Serve serves the requests of a listener until ctx is cancelled, over TLS if config is not nil. It returns
// when all requests have ended or are cut off. All listeners of a gateway share the limit of connections.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	return serveListener(ctx, g.connections.Listener(listener), config, g)
}

// serveListener serves the requests of a listener with a handler in the same way.
func serveListener(ctx context.Context, listener net.Listener, config *tls.Config, handler http.Handler) error {
	var working sync.WaitGroup
	logger := klog.FromContext(ctx)
	// The contexts of requests end with cut. Upgraded connections end only by that.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler: connections.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			working.Add(1)
			defer working.Done()
			controller := http.NewResponseController(w)
			// Clear the deadline of the previous request of the connection.
			_ = controller.SetWriteDeadline(time.Time{})
			// With HTTP/2, a client that accepts no data but answers pings would keep its stream for
			// ever.
			defer func() {
				now := clock.RealClock{}.Now()
				_ = controller.SetWriteDeadline(now.Add(responseStallTimeout))
				// With HTTP/1, the server reads the rest of the body before it sends a short response. It
				// clears this deadline itself for the next request.
				if r.ProtoMajor == 1 && r.ContentLength != 0 {
					_ = controller.SetReadDeadline(now.Add(bodyTimeout))
				}
			}()
			handler.ServeHTTP(w, r)
		}), headerLimits),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			// routes and apikeys limit reads for unknown ids by this source (lookups.Group.Do).
			return lookups.WithSource(ctx, conn.RemoteAddr().String())
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if its := connections.Of(conn); its != nil && state == http.StateIdle {
				its.MarkIdle()
			}
		},
		TLSConfig:         config.Clone(), // the server changes it, and other listeners may have the same
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         new(http.Protocols),
		// Limits what the server keeps for streams that are not read.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer, MaxReadFrameSize: maxFrame,
			// Bodies that are not read do not stop those of other requests.
			MaxReceiveBufferPerConnection: maxStreams * streamBuffer,
			SendPingTimeout:               30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: time.Minute,
		},
		ErrorLog: connections.ErrorLog(logger),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(config == nil)
	serveErr := make(chan error, 1)
	go func() {
		if config != nil {
			serveErr <- server.ServeTLS(listener, "", "")
		} else {
			serveErr <- server.Serve(listener)
		}
	}()
	select {
	case err := <-serveErr:
		return errors.Join(fmt.Errorf("serving on %s: %w", listener.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // cuts streams
	}
	if ended := <-serveErr; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	cut()
	return errors.Join(err, waitFor(&working))
}

// waitFor waits for handlers whose connections are cut.
func waitFor(working *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		working.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(cutTimeout):
		return fmt.Errorf("requests are still processed %s after their connections were cut", cutTimeout)
	}
}
