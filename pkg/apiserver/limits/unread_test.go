// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/limits"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// smallBuffers makes the buffers of connections so small that a response does not fit into them.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = errors.Join(err, tcp.SetWriteBuffer(16<<10))
	}
	return conn, err
}

// dialSmall is for the other end of such connections.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = errors.Join(err, tcp.SetReadBuffer(64<<10))
	}
	return conn, err
}

// startUnread starts a server whose responses have no deadline that this test could wait for.
func startUnread(t *testing.T) (*watching, *tls.Config) {
	t.Helper()
	w := startWatching(t, limits.DefaultWatchLimits(), testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.RequestTimeout = time.Hour
		// Slots of work would refuse some of the requests before they have a response.
		c.ExtraConfig.ExemptWriters = sets.New("sandlot-admin")
		serving := c.GenericConfig.SecureServing
		serving.Listener = smallBuffers{serving.Listener}
	}))
	config, err := rest.TLSConfigFor(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	return w, config
}

// create sends a create whose response has 200 KB. The response is not read.
func (w *watching) create(ctx context.Context, t *testing.T, client *http.Client, name string) (*http.Response, error) {
	t.Helper()
	body, err := json.Marshal(builders.LargeTemplate(name))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Config.Host+
		"/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxtemplates?name="+name, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

// waitEnded waits until the handlers of n requests have returned.
func (w *watching) waitEnded(t *testing.T, n int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for i := range n {
		select {
		case <-w.ended:
		case <-timeout:
			t.Fatalf("%d requests have ended, want %d", i, n)
		}
	}
}

// TestUnreadResponses: a user who does not read the responses to writes keeps only so many requests, over either
// version of HTTP. The others end, and those that are kept can still be read.
func TestUnreadResponses(t *testing.T) {
	const more = 8
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP%d", proto), func(t *testing.T) {
			t.Parallel()
			w, config := startUnread(t)
			transport := &http.Transport{
				TLSClientConfig: config, DialContext: dialSmall, Protocols: new(http.Protocols), DisableCompression: true,
				HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 16},
			}
			transport.Protocols.SetHTTP1(proto == 1)
			transport.Protocols.SetHTTP2(proto == 2)
			t.Cleanup(transport.CloseIdleConnections)
			var responses []*http.Response
			for i := range limits.MaxUnreadOfUser + more {
				resp, err := w.create(t.Context(), t, &http.Client{Transport: transport}, fmt.Sprint("unread-", i))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				if resp.StatusCode != http.StatusCreated || resp.ProtoMajor != proto {
					t.Fatalf("%s %s", resp.Proto, resp.Status)
				}
				responses = append(responses, resp)
			}
			w.waitEnded(t, more)
			var whole int
			for _, resp := range responses {
				if _, err := io.Copy(io.Discard, resp.Body); err == nil {
					whole++
				}
			}
			if whole != limits.MaxUnreadOfUser {
				t.Errorf("%d responses are whole, want %d", whole, limits.MaxUnreadOfUser)
			}
		})
	}
}

// TestFrozenResponses: if a client with too many unread responses reads nothing from a connection of HTTP/2, so
// that no stream of it can be ended, the connection is closed.
func TestFrozenResponses(t *testing.T) {
	t.Parallel()
	const requests = limits.MaxUnreadOfUser + 16
	w, config := startUnread(t)
	frozen := make(chan struct{})
	transport := &http.Transport{
		TLSClientConfig: config, Protocols: new(http.Protocols), DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialSmall(ctx, network, address)
			return freezing{conn, frozen, t.Context().Done()}, err
		},
	}
	transport.Protocols.SetHTTP2(true)
	client := &http.Client{Transport: transport}
	resp, err := w.create(t.Context(), t, client, "first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	w.waitEnded(t, 1)
	close(frozen)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			if resp, err := w.create(ctx, t, client, fmt.Sprint("frozen-", i)); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	w.waitEnded(t, requests)
	cancel()
	all.Wait()
}

// TestUnreadShortResponses: a response that net/http keeps until its handler has returned counts as unread too.
func TestUnreadShortResponses(t *testing.T) {
	t.Parallel()
	const more = 8
	w, config := startUnread(t)
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.Config.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err := errors.Join(err, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})); err != nil {
		t.Fatal(err)
	}
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for i := range limits.MaxUnreadOfUser + more {
		headers.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/version"}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: headers.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	reset, whole := 0, 0
	for reset+whole < limits.MaxUnreadOfUser+more {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%d are ended, %d are whole, then: %v", reset, whole, err)
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			if reset++; reset == more { // read the others
				err = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				whole++
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if reset != more {
		t.Errorf("%d responses are ended, want %d", reset, more)
	}
}
