// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/limits"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// watching is a server that reports the watches that end, by their parameter "name".
type watching struct {
	*testutil.Server
	client *http.Client
	ended  chan string
}

func startWatching(t *testing.T, bounds limits.WatchLimits, options ...testutil.Option) *watching {
	t.Helper()
	w := &watching{ended: make(chan string, 1000)}
	w.Server = testutil.Start(t, append(options, testutil.WithConfig(func(c *apiserver.Config) {
		c.ExtraConfig.WatchLimits = bounds
		chain := c.GenericConfig.BuildHandlerChainFunc
		c.GenericConfig.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
			return chain(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
				handler.ServeHTTP(rw, req)
				if name := req.URL.Query().Get("name"); name != "" {
					w.ended <- name
				}
			}), config)
		}
	}))...)
	tls, err := rest.TLSConfigFor(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	// The transport takes so many bytes of a response that is not read.
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 16}}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &http.Client{Transport: transport}
	return w
}

// watch begins a watch of the template of a name.
func (w *watching) watch(t *testing.T, name, template string) *bufio.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.Config.Host+
		"/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxtemplates?watch=1&timeoutSeconds=3600&name="+name+
		"&fieldSelector=metadata.name%3D"+template, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("the watch %s: %s %s", name, resp.Proto, resp.Status)
	}
	return bufio.NewReader(resp.Body)
}

// A watch that is not read is ended for another one, and watches that are read stay open.
func TestStuckWatches(t *testing.T) {
	t.Parallel()
	w := startWatching(t, limits.WatchLimits{UserBytes: 300 << 10, Bytes: 1 << 30, WriteTimeout: time.Hour, Watches: 100})
	templates := w.Client.AgentsV1alpha1().SandboxTemplates("default")
	if _, err := templates.Create(t.Context(), builders.LargeTemplate("large"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	read := w.watch(t, "read", "small")
	w.watch(t, "one", "large")
	w.watch(t, "two", "large")
	if got := <-w.ended; got != "one" && got != "two" { // whichever was written first
		t.Fatalf("the watch %q ended", got)
	}
	if _, err := templates.Create(t.Context(), builders.Template("small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := json.NewDecoder(read).Decode(&event); err != nil || event.Type != "ADDED" {
		t.Errorf("the watch that is read: %v, event %q", err, event.Type)
	}
}

// A watch that is not read ends when the time of a write is over.
func TestStuckWatchTimesOut(t *testing.T) {
	t.Parallel()
	w := startWatching(t, limits.WatchLimits{UserBytes: 1 << 30, Bytes: 1 << 30, WriteTimeout: time.Second, Watches: 100})
	if _, err := w.Client.AgentsV1alpha1().SandboxTemplates("default").Create(t.Context(), builders.LargeTemplate("large"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.watch(t, "stuck", "large")
	if got := <-w.ended; got != "stuck" {
		t.Errorf("the watch %q ended", got)
	}
}

// freezing is a connection that reads nothing more when it is frozen.
type freezing struct {
	net.Conn
	frozen, closed <-chan struct{}
}

func (c freezing) Read(p []byte) (int, error) {
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Read(p)
	}
}

// A client that reads nothing from a whole connection of HTTP/2, so that no stream of it can be ended,
// loses the connection.
func TestFrozenConnection(t *testing.T) {
	t.Parallel()
	const watches = 80 // their events take more bytes than the buffers of a connection have
	w := startWatching(t, limits.WatchLimits{UserBytes: 1 << 30, Bytes: 1 << 30, WriteTimeout: 500 * time.Millisecond, Watches: 1000})
	tls, err := rest.TLSConfigFor(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	frozen := make(chan struct{})
	client := *w
	client.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: tls, ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 20},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return freezing{conn, frozen, t.Context().Done()}, err
		},
	}}
	for i := range watches {
		client.watch(t, fmt.Sprint("frozen-", i), "large")
	}
	close(frozen)
	if _, err := w.Client.AgentsV1alpha1().SandboxTemplates("default").Create(t.Context(), builders.LargeTemplate("large"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range watches {
		<-w.ended
	}
}
