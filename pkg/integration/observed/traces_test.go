// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// collector is an OpenTelemetry collector that keeps what it is sent.
type collector struct {
	collectortrace.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*tracepb.Span
}

// Export implements the collector's service.
func (c *collector) Export(_ context.Context, req *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

// trace returns the spans of one trace.
func (c *collector) trace(id string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var spans []*tracepb.Span
	for _, span := range c.spans {
		if hex.EncodeToString(span.GetTraceId()) == id {
			spans = append(spans, span)
		}
	}
	return spans
}

func startCollector(t *testing.T) (*collector, string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{}, grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the collector ended: %v", err)
		}
	})
	return c, listener.Addr().String()
}

// withHeader returns a client whose requests carry a header.
func withHeader(t *testing.T, config *rest.Config, name, value string) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(addingHeader(config, name, value))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// addingHeader is a configuration of clients whose requests carry a header.
func addingHeader(config *rest.Config, name, value string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set(name, value)
			return next.RoundTrip(req)
		})
	})
	return config
}

// tracingFile is the configuration of a server that traces only what a client wants traced.
func tracingFile(t *testing.T, endpoint string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	config := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 0\n", endpoint)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// path names a span and those that it is in, the outermost first.
func path(spans []*tracepb.Span, span *tracepb.Span) string {
	for _, outer := range spans {
		if len(span.GetParentSpanId()) > 0 && string(outer.GetSpanId()) == string(span.GetParentSpanId()) {
			return path(spans, outer) + " > " + span.GetName()
		}
	}
	return span.GetName()
}

// A claim can be followed from the client's request into the transaction, and,
// where the answer did not have everything, beyond the answer.
func TestClaimIsTraced(t *testing.T) {
	collector, endpoint := startCollector(t)
	file := tracingFile(t, endpoint)
	s := testutil.Start(t, testutil.WithOptions(func(o *options.Options) {
		o.Traces.ConfigFile = file
		o.SyncWindow = 0
	}))
	set := s.Set(t, namespace, "pool", 2)
	s.Stock(t, set, 0, 1)
	create := func(trace, parent string, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
		t.Helper()
		client := withHeader(t, s.Config, "Traceparent", "00-"+trace+"-"+parent+"-01")
		created, err := client.AgentsV1alpha1().SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	const warm, waiting, parent = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d", "b7ad6b7169203331"
	if claim := create(warm, parent, testutil.Claim(set, "warm", 1, nil)); len(claim.Status.Sandboxes) != 1 {
		t.Fatalf("the warm claim says %+v", claim.Status)
	}
	claim := create(waiting, parent, testutil.Claim(set, "waiting", 1, func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.CreateOnNoStock = new(false)
	}))
	if len(claim.Status.Sandboxes) != 0 {
		t.Fatalf("the claim that is to wait says %+v", claim.Status)
	}
	s.Stock(t, set, 1, 1)
	s.AwaitClaim(t, namespace, "waiting", testutil.Completed)
	s.Stop() // which sends what has been recorded

	const request = "POST /apis/agents.kruise.io/v1alpha1/namespaces/{:namespace}/sandboxclaims"
	bind := request + " > Create > Bind SandboxClaim"
	for trace, want := range map[string]map[string]int{
		warm: {
			request: 1, bind: 1,
			bind + " > Find sandboxes": 1, bind + " > Commit": 1, bind + " > Commit > etcdserverpb.KV/Txn": 1,
		},
		// The claim as it comes, and, after the answer, with its sandbox.
		waiting: {
			request: 1, bind: 1,
			bind + " > Wait for sandboxes": 1, bind + " > Commit": 2, bind + " > Commit > etcdserverpb.KV/Txn": 2,
		},
	} {
		spans := collector.trace(trace)
		var paths []string
		got := map[string]int{}
		for _, span := range spans {
			in := path(spans, span)
			paths = append(paths, in)
			// The filters of the generic server lie between the request and its work.
			if at := strings.Index(in, " > Create"); at > 0 && strings.HasPrefix(in, request) {
				in = request + in[at:]
			}
			if _, wanted := want[in]; wanted {
				got[in]++
			}
			if span.GetName() == request && hex.EncodeToString(span.GetParentSpanId()) != parent {
				t.Errorf("the request is not in the client's span, but in %x", span.GetParentSpanId())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			slices.Sort(paths)
			t.Errorf("trace %s (-want +got):\n%sall of it:\n%s", trace, diff, strings.Join(paths, "\n"))
		}
	}
}
