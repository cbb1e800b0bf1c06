// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
)

const (
	// headerTimeout is how long the headers of a request may take, idleTimeout how long a
	// connection may be without one, and maxHeader how long they may be together.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	// drainTimeout is how long requests may take to end when the server does, and
	// cutTimeout how long they may take after their connections were cut.
	drainTimeout = 20 * time.Second
	cutTimeout   = 20 * time.Second
	// answerTimeout is how long a client may take nothing of what is left of an answer when
	// its handler has returned, and bodyTimeout how long what is left of its request may take
	// to come then.
	answerTimeout = time.Minute
	bodyTimeout   = 15 * time.Second
	// maxStreams is how many requests come over one connection of HTTP/2 at a time, and
	// streamBuffer how much of a body of such a one is kept that is not read. With that, a
	// request that is forwarded takes up to 100 KiB.
	maxStreams   = 250
	streamBuffer = 64 << 10
)

// Serve answers requests of a listener until ctx is cancelled, over TLS if config is not
// nil, and returns when all are answered or cut off. All listeners of a gateway share the
// limit of connections.
func (g *Gateway) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	return Serve(ctx, limitedListener{listener, g.connections}, config, g)
}

// Serve answers requests of a listener by a handler in the same way.
func Serve(ctx context.Context, listener net.Listener, config *tls.Config, handler http.Handler) error {
	var working sync.WaitGroup
	logger := klog.FromContext(ctx)
	// Connections that were upgraded are the handlers' own, and end with this.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			working.Add(1)
			defer working.Done()
			if conn := connOf(r.Context()); conn != nil {
				if !conn.begin() {
					panic(http.ErrAbortHandler) // it is closed
				}
				defer conn.end()
			}
			controller := http.NewResponseController(w)
			// That of the request before it on the connection is not this one's.
			_ = controller.SetWriteDeadline(time.Time{})
			// Over HTTP/2 a client says how much it takes. One that takes nothing and answers
			// pings would keep its stream for ever.
			defer func() {
				now := clock.RealClock{}.Now()
				_ = controller.SetWriteDeadline(now.Add(answerTimeout))
				// Over HTTP/1 the server reads on before it sends a short answer. It lifts this
				// deadline itself for the next request.
				if r.ProtoMajor == 1 && r.ContentLength != 0 {
					_ = controller.SetReadDeadline(now.Add(bodyTimeout))
				}
			}()
			handler.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return withConn(lookups.WithSource(ctx, conn.RemoteAddr().String()), conn)
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if its := limited(conn); its != nil && state == http.StateIdle {
				its.answered()
			}
		},
		TLSConfig:         config.Clone(), // the server changes it, and other listeners may have the same
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         new(http.Protocols),
		// Bounds what clients can make the server keep for streams that are not read.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer,
			// Bodies that are not read do not stop those of other requests.
			MaxReceiveBufferPerConnection: maxStreams * streamBuffer,
			SendPingTimeout:               30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: time.Minute,
		},
		ErrorLog: log.New(quiet{logger}, "", 0),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(config == nil)
	failed := make(chan error, 1)
	go func() {
		if config != nil {
			failed <- server.ServeTLS(listener, "", "")
		} else {
			failed <- server.Serve(listener)
		}
	}()
	select {
	case err := <-failed:
		return errors.Join(fmt.Errorf("serving on %s: %w", listener.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // what streams now is cut
	}
	if ended := <-failed; !errors.Is(ended, http.ErrServerClosed) {
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

// quiet logs what net/http says of single connections where it is asked for: it is about
// clients that anybody can be. A panic is about us.
type quiet struct{ klog.Logger }

// Write implements io.Writer.
func (q quiet) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: panic")) || bytes.HasPrefix(line, []byte("http2: panic")) {
		q.Error(nil, "Recovered from a panic of a request", "message", string(line))
		return len(line), nil
	}
	q.V(4).Info("Connection", "message", string(line))
	return len(line), nil
}
