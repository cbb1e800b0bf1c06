// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/runtime"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// patient has attempts that a slow machine does not cut short.
var patient = runtime.Options{AttemptTimeout: time.Minute}

var request = runtime.InitRequest{EnvVars: map[string]string{"PASSWORD": "hunter2"}, AccessToken: "6a1c8f0e-3b52-4c62-9b4f-000000000001"}

func target(rt *runtimetest.Runtime) runtime.Target {
	return runtime.Target{Namespace: "default", PodIP: rt.IP}
}

func TestInitSendsWhatTheContractSays(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	if err := runtime.New(patient).Init(t.Context(), target(rt), request); err != nil {
		t.Fatal(err)
	}
	calls := rt.Calls()
	if len(calls) != 1 {
		t.Fatalf("%d calls, want 1", len(calls))
	}
	call := calls[0]
	if call.Method != http.MethodPost || call.Path != "/init" || call.Status != http.StatusNoContent {
		t.Errorf("the call was %s %s, answered %d", call.Method, call.Path, call.Status)
	}
	if got := call.Header.Get("X-Access-Token"); got != request.AccessToken {
		t.Errorf("X-Access-Token is %q", got)
	}
	var body map[string]any
	if err := json.Unmarshal(call.Body, &body); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"envVars": map[string]any{"PASSWORD": "hunter2"}, "accessToken": request.AccessToken}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if rt.Env()["PASSWORD"] != "hunter2" || rt.Token() != request.AccessToken {
		t.Errorf("the runtime has environment %v and token %q", rt.Env(), rt.Token())
	}
}

func TestInitOmitsWhatIsEmpty(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	if err := runtime.New(patient).Init(t.Context(), target(rt), runtime.InitRequest{}); err != nil {
		t.Fatal(err)
	}
	call := rt.Calls()[0]
	if string(call.Body) != "{}" || len(call.Header.Values("X-Access-Token")) != 0 {
		t.Errorf("body %s, X-Access-Token %q", call.Body, call.Header.Values("X-Access-Token"))
	}
}

func TestInitMayBeRepeated(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	client := runtime.New(patient)
	for range 2 {
		if err := client.Init(t.Context(), target(rt), request); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAny2xxIsSuccess(t *testing.T) {
	fleet := runtimetest.Start(t)
	client := runtime.New(patient)
	for _, status := range []int{200, 201, 202, 204, 299} {
		rt := fleet.Next()
		rt.Act(runtimetest.Answer(status), 1)
		if err := client.Init(t.Context(), target(rt), request); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestInitIsRetried(t *testing.T) {
	for name, test := range map[string]struct {
		action runtimetest.Action
		effect int
	}{
		"500":                                {runtimetest.Answer(500), 1},
		"503":                                {runtimetest.Answer(503), 1},
		"the connection breaks before":       {runtimetest.Die(runtimetest.Before), 1},
		"the connection breaks after effect": {runtimetest.Die(runtimetest.After), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := runtimetest.Start(t).Next()
			rt.Act(test.action, 2)
			if err := runtime.New(patient).Init(t.Context(), target(rt), request); err != nil {
				t.Fatal(err)
			}
			if calls := len(rt.Calls()); calls != 3 {
				t.Errorf("%d calls, want 3", calls)
			}
			if rt.Inits() != test.effect {
				t.Errorf("%d effects, want %d", rt.Inits(), test.effect)
			}
		})
	}
}

func TestInitGivesUpAfterFiveAttemptsWithGrowingPauses(t *testing.T) {
	t.Parallel()
	rt := runtimetest.Start(t).Next()
	rt.Act(runtimetest.Answer(500), 10)
	began := time.Now()
	err := runtime.New(patient).Init(t.Context(), target(rt), request)
	if !runtime.IsUnreachable(err) || !strings.Contains(err.Error(), "answered 500") {
		t.Errorf("got %v", err)
	}
	if calls := len(rt.Calls()); calls != 5 {
		t.Errorf("%d calls, want 5", calls)
	}
	if took := time.Since(began); took < 3*time.Second { // 200 + 400 + 800 + 1600 ms
		t.Errorf("it gave up after %s", took)
	}
}

func TestConnectionsThatAreRefusedAreRetried(t *testing.T) {
	t.Parallel()
	fleet := runtimetest.Start(t)
	rt := fleet.Next()
	rt.Stop()
	began := time.Now()
	err := runtime.New(patient).Init(t.Context(), target(rt), request)
	if !runtime.IsUnreachable(err) || !strings.Contains(err.Error(), "refused the connection, the last of 5 times") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("it gave up after %s", took)
	}
}

func TestAnAttemptIsCutShort(t *testing.T) {
	t.Parallel()
	rt := runtimetest.Start(t).Next()
	release := make(chan struct{})
	rt.Act(runtimetest.Hang(release), 1)
	t.Cleanup(func() { close(release) })
	// The first attempt hangs; the next is answered, if it takes the machine no second.
	if err := runtime.New(runtime.Options{}).Init(t.Context(), target(rt), request); err != nil {
		t.Fatal(err)
	}
}

func Test4xxIsFinal(t *testing.T) {
	t.Parallel()
	fleet := runtimetest.Start(t)
	client := runtime.New(patient)
	for _, status := range []int{400, 403, 404, 429} {
		rt := fleet.Next()
		rt.Act(runtimetest.Answer(status), 5)
		err := client.Init(t.Context(), target(rt), request)
		if err == nil || runtime.IsUnreachable(err) || runtime.IsUnauthorized(err) || !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("%d: got %v", status, err)
		}
		if calls := len(rt.Calls()); calls != 1 {
			t.Errorf("%d: %d calls", status, calls)
		}
	}
}

func TestAnotherTokenIsUnauthorized(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	rt.SetToken("somebody-elses")
	err := runtime.New(patient).Init(t.Context(), target(rt), request)
	if !runtime.IsUnauthorized(err) {
		t.Errorf("got %v", err)
	}
	if calls := len(rt.Calls()); calls != 1 || rt.Inits() != 0 {
		t.Errorf("%d calls, %d effects", calls, rt.Inits())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	fleet := runtimetest.Start(t)
	victim, rt := fleet.Next(), fleet.Next()
	for _, status := range []int{301, 302, 307, 308} {
		rt.Act(runtimetest.Action{Status: status, Header: http.Header{"Location": {victim.URL() + "/init"}}}, 1)
		if err := runtime.New(patient).Init(t.Context(), target(rt), request); err == nil {
			t.Errorf("%d counts as success", status)
		}
	}
	if calls := victim.Calls(); len(calls) != 0 {
		t.Errorf("a redirect was followed: %v", calls[0].Path)
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	fleet := runtimetest.Start(t)
	proxy, rt := fleet.Next(), fleet.Next()
	t.Setenv("HTTP_PROXY", proxy.URL())
	t.Setenv("http_proxy", proxy.URL())
	if err := runtime.New(patient).Init(t.Context(), target(rt), request); err != nil {
		t.Fatal(err)
	}
	if len(proxy.Calls()) != 0 || len(rt.Calls()) != 1 {
		t.Errorf("%d calls of the proxy, %d of the runtime", len(proxy.Calls()), len(rt.Calls()))
	}
}

// TestCallsInTheBackgroundTakeNoPlaceOfOthers: however many runtimes do not answer. Each is called
// once.
func TestCallsInTheBackgroundTakeNoPlaceOfOthers(t *testing.T) {
	fleet := runtimetest.Start(t)
	dead, rt, hold := fleet.Next(), fleet.Next(), make(chan struct{})
	came := make(chan struct{}, 100)
	fleet.Script(func(called *runtimetest.Runtime, _ runtimetest.Call) runtimetest.Action {
		if called != dead {
			return runtimetest.Action{}
		}
		came <- struct{}{}
		return runtimetest.Hang(hold)
	})
	client, quiet := runtime.New(runtime.Options{AttemptTimeout: time.Minute, Calls: 1}), request
	quiet.InBackground = true
	ended := make(chan error, 1)
	go func() { ended <- client.Init(t.Context(), target(dead), quiet) }()
	<-came
	if err := client.Init(t.Context(), target(rt), request); err != nil {
		t.Error(err)
	}
	close(hold)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	dead.Stop()
	if err := client.Init(t.Context(), target(dead), quiet); !runtime.IsUnreachable(err) || strings.Contains(err.Error(), "times") {
		t.Errorf("got %v", err)
	}
}

func TestAnswersAreReadOnlyToABound(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for req.Context().Err() == nil { // until the client has had enough
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	at := runtime.Target{Namespace: "default", PodIP: "127.0.0.1", URL: endless.URL}
	if err := runtime.New(patient).Init(t.Context(), at, request); err != nil {
		t.Fatal(err)
	}
}

func TestHeadersAreReadOnlyToABound(t *testing.T) {
	t.Parallel()
	large := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("a", 1<<20))
	}))
	t.Cleanup(large.Close)
	at := runtime.Target{Namespace: "default", PodIP: "127.0.0.1", URL: large.URL}
	if err := runtime.New(patient).Init(t.Context(), at, request); err == nil {
		t.Error("an answer with a header of 1 MiB was taken")
	}
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	secrets := []string{"hunter2", request.AccessToken, "echoed"}
	fleet := runtimetest.Start(t)
	for name, act := range map[string]runtimetest.Action{
		"400": {Status: 400, Body: "echoed hunter2 " + request.AccessToken},
		"500": {Status: 500, Body: "echoed hunter2 " + request.AccessToken},
		"302": {Status: 302, Header: http.Header{"Location": {"http://127.0.0.1/echoed/" + request.AccessToken}}},
	} {
		rt := fleet.Next()
		rt.Act(act, 5)
		noSecrets(t, name, runtime.New(patient).Init(t.Context(), target(rt), request), secrets)
	}
	// No HTTP at all: the errors of net/http quote such answers.
	for _, raw := range []string{"echoed hunter2\r\n\r\n", "HTTP/1.1 abc echoed\r\n\r\n", "HTTP/1.1 200 OK\r\nechoed hunter2\r\n\r\n"} {
		noSecrets(t, raw, runtime.New(patient).Init(t.Context(), rawServer(t, raw), request), secrets)
	}
}

func noSecrets(t *testing.T, name string, err error, secrets []string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", name)
		return
	}
	for _, secret := range secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error has a secret: %v", name, err)
		}
	}
}

// rawServer answers each connection with the same bytes.
func rawServer(t *testing.T, raw string) runtime.Target {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			_, _ = conn.Read(make([]byte, 64<<10))
			_, _ = conn.Write([]byte(raw))
			_ = conn.Close()
		}
	}()
	return runtime.Target{Namespace: "default", PodIP: "127.0.0.1", URL: "http://" + listener.Addr().String()}
}

func TestIPv6PodsAreReached(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Fatalf("the machine has no IPv6 loopback: %v", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}}
	server.Start()
	t.Cleanup(server.Close)
	at := runtime.Target{Namespace: "default", PodIP: "::1", URL: server.URL + "/base"}
	if err := runtime.New(patient).Init(t.Context(), at, request); err != nil {
		t.Fatal(err)
	}
}

func TestInitEndsWithItsContext(t *testing.T) {
	rt := runtimetest.Start(t).Next()
	release := make(chan struct{})
	rt.Act(runtimetest.Hang(release), 1)
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(nil) })
	if err := runtime.New(patient).Init(ctx, target(rt), request); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionsAreNotKept(t *testing.T) {
	open := make(chan net.Conn, 10)
	closed := make(chan net.Conn, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open <- conn
		case http.StateClosed:
			closed <- conn
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	at := runtime.Target{Namespace: "default", PodIP: "127.0.0.1", URL: server.URL}
	if err := runtime.New(patient).Init(t.Context(), at, request); err != nil {
		t.Fatal(err)
	}
	<-open
	<-closed // or the test hangs
}

func TestTLSRuntimes(t *testing.T) {
	pki := runtimetest.NewPKI(t)
	rt := pki.StartTLS(t).Next()
	at := target(rt)
	at.TLSPort = fmt.Sprint(runtimetest.Port)
	at.URL = "http://192.0.2.1:1/elsewhere" // the port goes before it
	client := runtime.New(runtime.Options{AttemptTimeout: time.Minute, TLS: func() (*tls.Config, error) { return pki.Client(t), nil }})
	if err := client.Init(t.Context(), at, request); err != nil {
		t.Fatal(err)
	}
	if rt.Inits() != 1 {
		t.Errorf("%d effects", rt.Inits())
	}
}

func TestTLSRuntimesWithoutCertificates(t *testing.T) {
	fleet := runtimetest.Start(t) // takes plain HTTP
	rt := fleet.Next()
	at := target(rt)
	at.TLSPort = fmt.Sprint(runtimetest.Port)
	err := runtime.New(patient).Init(t.Context(), at, request)
	if !runtime.IsUnable(err) || !strings.Contains(err.Error(), "--runtime-ca-file") {
		t.Errorf("got %v", err)
	}
	if len(rt.Calls()) != 0 {
		t.Error("it was called without TLS")
	}
}

func TestRuntimesOfAnotherCAAreNotTrusted(t *testing.T) {
	t.Parallel()
	rt := runtimetest.NewPKI(t).StartTLS(t).Next()
	at := target(rt)
	at.TLSPort = fmt.Sprint(runtimetest.Port)
	other := runtimetest.NewPKI(t)
	client := runtime.New(runtime.Options{AttemptTimeout: time.Minute, TLS: func() (*tls.Config, error) { return other.Client(t), nil }})
	err := client.Init(t.Context(), at, request)
	if err == nil || !strings.Contains(err.Error(), "not of the CA for runtimes") {
		t.Errorf("got %v", err)
	}
	if len(rt.Calls()) != 0 {
		t.Error("it was called")
	}
}
