// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestRun: a run beside a cluster that does not let it in is alive and not ready, says what
// it waits for, answers requests in JSON, and ends when it is asked to.
func TestRun(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer cluster.Close()
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: cluster.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	o := NewOptions()
	o.Kubeconfig, o.CertFile, o.KeyFile = filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	authority, err := localpki.OpenAuthority(dir, "ca", "test", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(localpki.Leaf{CommonName: "gateway", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(clientcmd.WriteToFile(*config, o.Kubeconfig), os.WriteFile(o.CertFile, pair.Cert, 0o600), os.WriteFile(o.KeyFile, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	o.BindAddress, o.SecurePort = net.IPv4(127, 0, 0, 1), freePort(t)
	o.HealthProbeBindAddress, o.MetricsBindAddress = fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	platform := "http://" + o.HealthProbeBindAddress
	expect.Eventually(t.Context(), t, func(context.Context) error {
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		code, text, err := get(t, http.DefaultClient, platform+"/healthz")
		if err == nil && (code != http.StatusOK || text != "ok") {
			err = fmt.Errorf("/healthz: %d %s", code, text)
		}
		return err
	})
	if code, text, err := get(t, http.DefaultClient, platform+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "not known yet") {
		t.Errorf("/readyz: %d %s %v", code, text, err)
	}
	// The port of metrics has fewer connections than requests come at a time.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	// With a token and a cluster, pkg/e2e/cluster reads them.
	expect.Eventually(t.Context(), t, func(context.Context) error {
		code, text, err := get(t, client, "https://"+o.MetricsBindAddress+"/metrics")
		if err == nil && code != http.StatusUnauthorized {
			err = fmt.Errorf("/metrics without a token: %d %s", code, text)
		}
		return err
	})
	if !refusesFlood(t, client, "https://"+o.MetricsBindAddress+"/metrics") {
		t.Error("/metrics takes bad tokens without end")
	}
	code, text, err := get(t, client, fmt.Sprintf("https://127.0.0.1:%d/sandboxes", o.SecurePort))
	var apiErr struct{ Code int }
	if err != nil || code != http.StatusUnauthorized || json.Unmarshal([]byte(text), &apiErr) != nil || apiErr.Code != code {
		t.Errorf("without a key: %d %s %v", code, text, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// refusesFlood reports whether some of many requests with bad tokens are refused unheard.
func refusesFlood(t *testing.T, client *http.Client, url string) bool {
	t.Helper()
	var refused atomic.Bool
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", fmt.Sprint("Bearer bad", i))
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				refused.Store(true)
			}
		})
	}
	all.Wait()
	return refused.Load()
}

// TestReady: traffic comes when all is known.
func TestReady(t *testing.T) {
	var missing error
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		answer := httptest.NewRecorder()
		health(func() error { return missing }).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if answer.Code != want {
			t.Errorf("%d %s, want %d", answer.Code, answer.Body, want)
		}
		missing = errors.New("missing")
	}
}

func get(t *testing.T, client *http.Client, url string) (code int, text string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

// freePort returns a port that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
