// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// boxAt runs a program at an address and returns its port.
func boxAt(t *testing.T, ip string, handler http.HandlerFunc) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	box := httptest.NewUnstartedServer(handler)
	_ = box.Listener.Close() // it is to have another address
	box.Listener = l
	box.Start()
	t.Cleanup(box.Close)
	return l.Addr().(*net.TCPAddr).Port
}

// TestSandboxProxy: a user with the right reaches the ports of a sandbox through the API server, and
// the sandbox gets no credentials for the API server.
func TestSandboxProxy(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	set := server.Set(t, "team", "pool", 2)
	names := server.StockWith(t, set, 0, 2, func(_ int, sb *v1alpha1.Sandbox) {
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = "127.9.1.1", "127.9.1.1"
	})
	var got *http.Request
	port := boxAt(t, "127.9.1.1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			if conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil); err == nil {
				_ = conn.WriteMessage(websocket.TextMessage, []byte("hello"))
				_ = conn.Close()
			}
			return
		}
		got = r.Clone(context.Background())
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Clear-Site-Data", "*")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.Method + " " + string(body)))
	})
	transport, err := rest.TransportFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	base := server.Config.Host + "/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxes/"
	ask := func(method, path, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", "secret")
		r.Header.Set("X-Remote-User", "secret")
		r.Header.Set("Authorization", "Basic secret")
		r.Header.Set("X-Access-Token", "mine")
		r.Header.Set("Sec-Websocket-Protocol", "chat, base64url.bearer.authorization.k8s.io.secret,v2")
		r.Header.Set("Content-Type", "application/merge-patch+json")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		resp, text := ask(method, fmt.Sprintf("%s/proxy/%d/a%%2Fb/c?x=1", names[0], port), "{body")
		if resp.StatusCode != http.StatusTeapot || text != method+" {body" {
			t.Fatalf("%s: %d %s", method, resp.StatusCode, text)
		}
		if got.RequestURI != "/a%2Fb/c?x=1" || got.Header.Get("X-Access-Token") != "mine" {
			t.Errorf("the sandbox is asked for %s, %v", got.RequestURI, got.Header)
		}
		if strings.Contains(fmt.Sprint(got.Header), "secret") {
			t.Errorf("the sandbox sees %v", got.Header)
		}
		if offered := got.Header.Get("Sec-Websocket-Protocol"); offered != "chat,v2" {
			t.Errorf("the sandbox is offered the protocols %q", offered)
		}
		if resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Clear-Site-Data") != "" || resp.Header.Get("Content-Security-Policy") != "sandbox" {
			t.Errorf("the browser gets %v", resp.Header)
		}
	}
	for path, say := range map[string]string{
		"/proxy": "the port is missing", "/proxy/": "the port must be", "/proxy/http/x": "the port must be", "/proxy/0/": "the port must be",
		"/proxy/65536/": "the port must be", "/proxy/080/": "the port must be",
	} {
		if resp, text := ask("GET", names[0]+path, ""); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, say) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	if resp, text := ask("GET", "nobody/proxy/80/", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("nobody: %d %s", resp.StatusCode, text)
	}
	if resp, text := ask("GET", names[0]+"/proxy/1/", ""); resp.StatusCode != http.StatusBadGateway || !strings.Contains(text, `"kind":"Status"`) {
		t.Errorf("a port that is not open: %d %s", resp.StatusCode, text)
	}

	dialer := websocket.Dialer{TLSClientConfig: tlsOf(t, server.Config)}
	conn, resp, err := dialer.DialContext(t.Context(), strings.Replace(base, "https", "wss", 1)+names[0]+"/proxy/"+strconv.Itoa(port)+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, text, err := conn.ReadMessage(); err != nil || string(text) != "hello" {
		t.Errorf("%s %v", text, err)
	}
	_ = conn.Close() // it has ended

	// One that does not run is not reached, though connections to it are kept.
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes("team")
	sb, err := sandboxes.Get(t.Context(), names[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sb.Status.Phase = v1alpha1.SandboxFailed
	if _, err := sandboxes.UpdateStatus(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if resp, text := ask("GET", fmt.Sprintf("%s/proxy/%d/", names[0], port), ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "not running") {
		t.Errorf("a failed one: %d %s", resp.StatusCode, text)
	}
	// A client with raw paths, as kubectl get --raw.
	raw, err := server.Client.AgentsV1alpha1().RESTClient().Get().AbsPath("/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxes/" + names[1] + "/proxy/1/").DoRaw(t.Context())
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusBadGateway {
		t.Errorf("%s %v", raw, err)
	}
	// The right is one of its own: without it, nothing is reported.
	other := rest.CopyConfig(server.Config)
	other.Impersonate.UserName = "somebody"
	as, err := rest.TransportFor(other)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", base+names[1]+"/proxy/80/", nil)
	if err != nil {
		t.Fatal(err)
	}
	denied, err := as.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer denied.Body.Close()
	if text, _ := io.ReadAll(denied.Body); denied.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "sandboxes/proxy") {
		t.Errorf("somebody: %d %s", denied.StatusCode, text)
	}
}

// TestSandboxProxyStreamsEnd: a connection through the API server ends when its sandbox is paused, deleted or
// claimed, and not when another sandbox is.
func TestSandboxProxyStreamsEnd(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	set := server.Set(t, "team", "pool", 4)
	names := server.StockWith(t, set, 0, 4, func(_ int, sb *v1alpha1.Sandbox) {
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = "127.9.1.2", "127.9.1.2"
	})
	port := boxAt(t, "127.9.1.2", func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		for err == nil {
			var text []byte
			if _, text, err = conn.ReadMessage(); err == nil {
				err = conn.WriteMessage(websocket.TextMessage, text)
			}
		}
	})
	open := func(name string) *websocket.Conn {
		t.Helper()
		dialer := websocket.Dialer{TLSClientConfig: tlsOf(t, server.Config)}
		base := strings.Replace(server.Config.Host, "https", "wss", 1) + "/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxes/"
		conn, resp, err := dialer.DialContext(t.Context(), base+name+"/proxy/"+strconv.Itoa(port)+"/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	echo := func(conn *websocket.Conn) error {
		if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
			return err
		}
		_, _, err := conn.ReadMessage()
		return err
	}
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes("team")
	other := open(names[3])
	for i, change := range []func() error{
		func() error {
			_, err := sandboxes.Patch(t.Context(), names[0], types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
			return err
		},
		func() error { return sandboxes.Delete(t.Context(), names[1], metav1.DeleteOptions{}) },
		func() error {
			sb, err := sandboxes.Get(t.Context(), names[2], metav1.GetOptions{})
			if err != nil {
				return err
			}
			sb.Status.PodInfo.PodUID = "another"
			_, err = sandboxes.UpdateStatus(t.Context(), sb, metav1.UpdateOptions{})
			return err
		},
	} {
		conn := open(names[i])
		if err := echo(conn); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(expect.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.ReadMessage(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("change %d: the connection continues: %v", i, err)
		}
		if err := echo(other); err != nil {
			t.Fatalf("change %d: the connection to another sandbox has ended: %v", i, err)
		}
	}
	// A claim takes the last two.
	if _, err := server.CreateOnce(t.Context(), "team", testutil.Claim(set, "claim", 2, nil)); err != nil {
		t.Fatal(err)
	}
	if err := other.SetReadDeadline(time.Now().Add(expect.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.ReadMessage(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection to a sandbox that was claimed continues: %v", err)
	}
}

// TestListsFromTheFuture: a list of any kind that continues from a revision of the future is refused at once, as
// one that is too old.
func TestListsFromTheFuture(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	for path, key := range map[string]string{
		"agents.kruise.io/v1alpha1/sandboxes": "team/a", "agents.kruise.io/v1alpha1/sandboxclaims": "team/a",
		"agents.kruise.io/v1alpha1/sandboxsets": "team/a", "agents.kruise.io/v1alpha1/sandboxtemplates": "team/a",
		"agents.x-k8s.io/v1beta1/sandboxes": "team/a", "extensions.agents.x-k8s.io/v1beta1/sandboxclaims": "team/a",
	} {
		token := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":9000000000,"start":"` + key + `\u0000"}`))
		err := server.Client.AgentsV1alpha1().RESTClient().Get().AbsPath("/apis/"+path).Param("limit", "1").Param("continue", token).MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func tlsOf(t *testing.T, config *rest.Config) *tls.Config {
	t.Helper()
	c, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c.NextProtos = []string{"http/1.1"}
	return c
}
