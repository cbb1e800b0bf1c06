// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/tokens"
)

// The requests of all clients count against one limit, but not those that keep the lease.
func TestClientsShareALimit(t *testing.T) {
	o := *NewOptions()
	cfg := clientConfig(&rest.Config{Host: "https://localhost:1"}, o)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	limiter := client.CoreV1().RESTClient().GetRateLimiter()
	if limiter == nil || limiter.QPS() != kubeAPIQPS || client.NetworkingV1().RESTClient().GetRateLimiter() != limiter {
		t.Errorf("the limiters are %v and %v", limiter, client.NetworkingV1().RESTClient().GetRateLimiter())
	}
	if lease := unlimited(cfg); lease.RateLimiter != nil || lease.QPS >= 0 || cfg.RateLimiter == nil {
		t.Errorf("the client of the lease is limited: %v, %v", lease.RateLimiter, lease.QPS)
	}
	o.KubeAPIQPS, o.KubeAPIBurst = 0, 0
	if cfg := clientConfig(&rest.Config{QPS: 1}, o); cfg.RateLimiter != nil || cfg.QPS >= 0 {
		t.Errorf("without a limit there is %v, %v", cfg.RateLimiter, cfg.QPS)
	}
}

// A flood of bad tokens at the metrics takes nothing from what the controllers ask.
func TestMetricsKeepToTheirLimit(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer cluster.Close()
	o := *NewOptions()
	o.KubeAPIQPS, o.KubeAPIBurst = 1e-4, 1
	cfg := clientConfig(&rest.Config{Host: cluster.URL}, o)
	metrics, err := tokens.Metrics(logr.Discard(), cfg, cluster.Client(), http.NotFoundHandler(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int]int{}
	for i := range 100 {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		req.Header.Set("Authorization", fmt.Sprint("Bearer bad", i))
		w := httptest.NewRecorder()
		metrics.ServeHTTP(w, req)
		codes[w.Code]++
	}
	if codes[http.StatusUnauthorized] == 0 || codes[http.StatusTooManyRequests] == 0 || len(codes) != 2 {
		t.Errorf("a flood of bad tokens is answered with %v", codes)
	}
	if !cfg.RateLimiter.TryAccept() {
		t.Error("the flood has used up the requests of the controllers")
	}
}

// TestCreatesAreNotRepeated: a create that exceeds a write limit holds no worker, and its error says
// when to try again. Creates that are rejected for other reasons are repeated.
func TestCreatesAreNotRepeated(t *testing.T) {
	rejection := func(mediaType string, causes ...metav1.StatusCause) string {
		status := apierrors.NewTooManyRequests("come again", 7).Status()
		status.TypeMeta, status.Details.Causes = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, causes
		info, _ := runtime.SerializerInfoForMediaType(clientscheme.Codecs.SupportedMediaTypes(), mediaType)
		text, err := runtime.Encode(info.Serializer, &status)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const inJSON, inProtobuf = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	limit := metav1.StatusCause{Type: v1alpha1.CauseWriteLimit}
	for name, test := range map[string]struct {
		mediaType, answer string
		want              int32
	}{
		"write limit":             {inJSON, rejection(inJSON, limit), 1},
		"write limit in protobuf": {inProtobuf, rejection(inProtobuf, limit), 1},
		"overload":                {inJSON, rejection(inJSON), 2},
		"overload in protobuf":    {inProtobuf, rejection(inProtobuf), 2},
		"another cause":           {inJSON, rejection(inJSON, metav1.StatusCause{Type: v1alpha1.CauseShortage}), 2},
		"priority and fairness":   {inJSON, "Too many requests, please try again later.\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if accept := req.Header.Get("Accept"); !strings.HasPrefix(accept, inProtobuf+",") || !strings.HasPrefix(req.Header.Get("Content-Type"), inJSON) {
					t.Errorf("a create accepts %s, and is sent as %s", accept, req.Header.Get("Content-Type"))
				}
				w.Header().Set("Content-Type", inJSON)
				if requests.Add(1)%2 == 0 { // the second for an object
					_, _ = io.WriteString(w, "{}") // as an API server of an earlier version, which has no protobuf
					return
				}
				w.Header().Set("Content-Type", test.mediaType)
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, test.answer)
			}))
			defer cluster.Close()
			agents, err := versioned.NewForConfig(clientConfig(&rest.Config{Host: cluster.URL}, *NewOptions()))
			if err != nil {
				t.Fatal(err)
			}
			api := agents.AgentsV1alpha1()
			for kind, create := range map[string]func() error{
				"sandbox": func() error {
					_, err := api.Sandboxes("team").Create(t.Context(), &v1alpha1.Sandbox{}, metav1.CreateOptions{})
					return err
				},
				"template": func() error {
					_, err := api.SandboxTemplates("team").Create(t.Context(), &v1alpha1.SandboxTemplate{}, metav1.CreateOptions{})
					return err
				},
			} {
				requests.Store(0)
				err := create()
				wait, delays := apierrors.SuggestsClientDelay(err)
				if requests.Load() != test.want || (err != nil) != (test.want == 1) || err != nil && (!delays || wait != 7) {
					t.Errorf("%s: %d requests, %v", kind, requests.Load(), err)
				}
			}
		})
	}
}
