// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
)

const (
	gatewayRoutes = "gateway/routes"
	// routesKept is how many sandboxes the table has to know, and maxRoutesMiB what it may
	// take for that.
	routesKept   = 100_000
	maxRoutesMiB = 100
	// routesTimeout is how long it may take to learn of them.
	routesTimeout = 5 * time.Minute
)

// routesFigures are what the gateway needs to know sandboxes.
type routesFigures struct {
	Routes        int    `json:"routes"`
	RoutesMiB     number `json:"routes_mib"`
	BytesPerRoute number `json:"bytes_per_route"`
	// LearnedS is how long it took to learn of all of them.
	LearnedS number `json:"routes_learned_s"`
}

// runRoutes measures the memory of the route table of the gateway: what stays reachable when
// it has watched sandboxes, with all that its watch keeps. The table is in this process, and
// watches a server that makes the sandboxes up as it sends them, so that nothing else is
// measured.
func (b *bench) runRoutes(ctx context.Context) error {
	if !b.wants(gatewayRoutes) {
		return nil
	}
	logf("%s: learning of %d sandboxes", gatewayRoutes, routesKept)
	figures, err := measureRoutes(ctx, routesKept)
	if err != nil {
		return fmt.Errorf("%s: %w", gatewayRoutes, err)
	}
	r := &result{Case: gatewayRoutes, Clients: 1, routesFigures: figures}
	r.judge(atMost("routes_mib", r.RoutesMiB, maxRoutesMiB))
	return b.report(r)
}

func measureRoutes(ctx context.Context, n int) (*routesFigures, error) {
	ctx, cancel := context.WithTimeout(ctx, routesTimeout)
	defer cancel()
	api := httptest.NewServer(sandboxStream(n))
	defer api.Close()
	clients, err := newClients(&rest.Config{Host: api.URL}, 1)
	if err != nil {
		return nil, err
	}
	before, began := heapInUse(), time.Now()
	table := routes.New(clients[0], routes.Options{})
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { _ = table.Run(watching) }) // nothing fails that has been stopped
	defer watch.Wait()
	defer stop()
	for !table.HasSynced() {
		if err := sleep(ctx, poolInterval); err != nil {
			return nil, fmt.Errorf("the table has not learned of all sandboxes: %w", err)
		}
	}
	took := time.Since(began)
	used := heapInUse() - before
	if table.Len() != n {
		return nil, fmt.Errorf("the table knows %d of %d sandboxes", table.Len(), n)
	}
	last := routedSandbox(n - 1)
	if route, ok := table.Known(last.Labels[v1alpha1.LabelSandboxID]); !ok || route.UID != last.UID || route.State != routes.Running {
		return nil, fmt.Errorf("the last sandbox has the route %+v", route)
	}
	runtime.KeepAlive(table)
	return &routesFigures{
		Routes: n, RoutesMiB: number(float64(used) / (1 << 20)), BytesPerRoute: number(float64(used) / float64(n)),
		LearnedS: number(took.Seconds()),
	}, nil
}

// sandboxStream answers a watch with n sandboxes and then says that these are all. What is
// not a watch from the beginning it does not know.
func sandboxStream(n int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if !strings.HasSuffix(r.URL.Path, "/sandboxes") || query.Get("watch") == "" || query.Get("sendInitialEvents") != "true" {
			http.Error(w, "only a watch with sendInitialEvents is served", http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		events := json.NewEncoder(w)
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = events.Encode(eventOf(watch.Added, routedSandbox(i)))
		}
		if err == nil {
			end := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: strconv.Itoa(n + 1), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}}
			err = events.Encode(eventOf(watch.Bookmark, end))
		}
		if err == nil {
			_ = http.NewResponseController(w).Flush() // it fails where nobody reads any more
			<-r.Context().Done()
		}
	})
}

type sandboxEvent struct {
	Type   watch.EventType   `json:"type"`
	Object *v1alpha1.Sandbox `json:"object"`
}

func eventOf(kind watch.EventType, sandbox *v1alpha1.Sandbox) sandboxEvent {
	sandbox.APIVersion, sandbox.Kind = v1alpha1.SchemeGroupVersion.String(), "Sandbox"
	return sandboxEvent{kind, sandbox}
}

// routedSandbox is one of the E2B API, with names as long as they may be.
func routedSandbox(i int) *v1alpha1.Sandbox {
	namespace := fmt.Sprintf("a-team-with-a-name-of-forty-letters-%04d", i%100)
	claim := fmt.Sprintf("e%013d", i)
	sandbox := indexedSandbox(i)
	sandbox.Namespace, sandbox.Name = namespace, fmt.Sprintf("a-pool-of-python-interpreters-%08d", i)
	sandbox.OwnerReferences = nil // it has left its pool
	sandbox.UID = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	sandbox.Labels[v1alpha1.LabelClaimName] = claim
	sandbox.Labels[v1alpha1.LabelSandboxID] = v1alpha1.E2BSandboxID(namespace, claim)
	sandbox.Annotations = map[string]string{
		v1alpha1.AnnotationClaimedBy:      v1alpha1.E2BUser(namespace),
		v1alpha1.AnnotationClaimTimestamp: "2026-11-22T10:00:00Z",
		v1alpha1.AnnotationE2BTimeout:     "300",
		v1alpha1.AnnotationE2BTemplateID:  "a-pool-of-python-interpreters",
	}
	return sandbox
}
