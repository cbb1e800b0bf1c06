// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/proxy"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2btest"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// replica is a gateway with a table of its own on a real API server. Its table follows only
// if it is watching.
func replica(t *testing.T, server *testutil.Server, watching bool) (*world, *routes.Table) {
	t.Helper()
	connections := sandboxproxy.NewConnections()
	table := routes.New(server.NewConnection(t), routes.Options{AllowLoopback: true, Connections: connections})
	p := proxy.New(proxy.Options{
		Table: table, Forwarder: newSandboxProxy(t, table.Resolve, connections),
		Token: func(context.Context, routes.Route) (string, error) { return "", errors.New("not asked for") },
		Resume: func(ctx context.Context, route routes.Route) error {
			sandbox, err := server.Client.AgentsV1alpha1().Sandboxes(route.Namespace).Get(ctx, route.Name, metav1.GetOptions{})
			if err == nil {
				e2btest.Resume(t, server, sandbox, "127.0.0.1")
			}
			return err
		},
	})
	if watching {
		follow(t, table)
	}
	gateway := httptest.NewServer(p)
	t.Cleanup(gateway.Close)
	return &world{url: gateway.URL}, table
}

// follow lets a table watch until the test ends.
func follow(t *testing.T, table *routes.Table) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		table.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	settles(t, func() error {
		if !table.HasSynced() {
			return errors.New("the table has not synced")
		}
		return nil
	})
}

// claimed is a sandbox at an address of this machine.
func claimed(t *testing.T, server *testutil.Server, set *v1alpha1.SandboxSet, annotations ...string) (*v1alpha1.Sandbox, string) {
	t.Helper()
	sandbox := e2btest.Claim(t, server, set, e2btest.Annotate(annotations...))
	place(t, server, sandbox, "127.0.0.1")
	return sandbox, v1alpha1.E2BSandboxID(sandbox.Namespace, sandbox.Labels[v1alpha1.LabelClaimName])
}

func place(t *testing.T, server *testutil.Server, sandbox *v1alpha1.Sandbox, address string) {
	t.Helper()
	e2btest.ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) { sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = address, address })
}

// TestWhatOneReplicaMadeTheOtherServesAtOnce: whether or not its watch has told it, and until
// the moment at which the sandbox is gone.
func TestWhatOneReplicaMadeTheOtherServesAtOnce(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	set := server.Set(t, "default", "pool", 12)
	server.Stock(t, set, 0, 12)
	port := listen(t, echo)
	for name, watching := range map[string]bool{"with a watch": true, "before it has seen anything": false} {
		t.Run(name, func(t *testing.T) {
			w, _ := replica(t, server, watching)
			for range 5 {
				sandbox, id := claimed(t, server, set)
				if response, body := w.get(t, id, port); response.StatusCode != http.StatusOK {
					t.Errorf("got %d %s", response.StatusCode, body)
				}
				closed := listen(t, echo) // no connection to it is open yet
				if err := server.Client.AgentsV1alpha1().Sandboxes(sandbox.Namespace).Delete(t.Context(), sandbox.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				response, body := w.get(t, id, closed)
				wantProblem(t, response, body, http.StatusBadGateway, "The sandbox", id)
			}
		})
	}
}

// TestAnAddressThatBelongsToAnother: a sandbox goes, and another one gets its name, its
// address, or both.
func TestAnAddressThatBelongsToAnother(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	set := server.Set(t, "default", "pool", 2)
	server.Stock(t, set, 0, 2)
	// The table never hears of what happens, as at the worst moment.
	w, table := replica(t, server, false)
	first, old := claimed(t, server, set)
	if route, err := table.Find(t.Context(), old); err != nil || route.UID != first.UID {
		t.Fatalf("got %+v, %v", route, err)
	}
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(first.Namespace)
	if err := sandboxes.Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second, id := claimed(t, server, set) // at the same address
	namesake := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: first.Namespace, Name: first.Name}, Spec: *first.Spec.DeepCopy()}
	namesake, err := sandboxes.Create(t.Context(), namesake, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e2btest.ChangeStatus(t, server, namesake, func(sb *v1alpha1.Sandbox) {
		sb.Status = testutil.ReadyStatus(1, time.Now())
		sb.Status.PodInfo.PodUID = sb.UID
	})
	place(t, server, namesake, "127.0.0.1")

	var reached atomic.Int32
	port := listen(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	response, body := w.get(t, old, port)
	wantProblem(t, response, body, http.StatusBadGateway, "not running", old)
	if reached.Load() != 0 {
		t.Error("traffic for a sandbox that is gone has reached another one")
	}
	if response, body := w.get(t, id, port); response.StatusCode != http.StatusOK || reached.Load() != 1 {
		t.Errorf("sandbox %s: got %d %s", second.Name, response.StatusCode, body)
	}
}

// TestPausedAndResumed: traffic resumes a sandbox that has asked for it, also when it is paused
// at the very moment, and no other.
func TestPausedAndResumed(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	set := server.Set(t, "default", "pool", 2)
	server.Stock(t, set, 0, 2)
	w, _ := replica(t, server, true)
	wakes, wakesID := claimed(t, server, set, v1alpha1.AnnotationE2BAutoResume, "true")
	rests, restsID := claimed(t, server, set)
	for i := range 5 {
		e2btest.Pause(t, server, wakes)
		port := listen(t, echo)
		r := w.request(t, http.MethodPost, "/", strings.NewReader(fmt.Sprint("body ", i)))
		forms["headers"](r, wakesID, port)
		if response, body := do(t, r); response.StatusCode != http.StatusOK || !strings.Contains(body, fmt.Sprint("body ", i)) {
			t.Errorf("got %d %s", response.StatusCode, body)
		}
	}
	e2btest.Pause(t, server, rests)
	response, body := w.get(t, restsID, listen(t, echo))
	wantProblem(t, response, body, http.StatusBadGateway, "not running", restsID)
}

// TestConnectionsEndWithTheirSandbox: an open connection ends when the watch reports that the sandbox is paused,
// deleted or in another pod, that its agent-runtime is not set up, or when it lists the sandboxes without it. That
// of another sandbox stays open.
func TestConnectionsEndWithTheirSandbox(t *testing.T) {
	t.Parallel()
	server := testutil.Start(t)
	set := server.Set(t, "default", "pool", 6)
	server.Stock(t, set, 0, 6)
	port := listen(t, upgradeEcho)
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes("default")
	remove := func(sandbox *v1alpha1.Sandbox) {
		if err := sandboxes.Delete(t.Context(), sandbox.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(what string, conn net.Conn) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(expect.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays open: %v", what, err)
		}
	}
	watching, _ := replica(t, server, true)
	watching.listenAsRuntime(t, upgradeEcho)
	late, lateTable := replica(t, server, false)
	_, other := claimed(t, server, set)
	otherConn, otherReader, _ := watching.upgrade(t, "headers", other, port)
	for what, change := range map[string]func(*v1alpha1.Sandbox){
		"paused":  func(sandbox *v1alpha1.Sandbox) { e2btest.Pause(t, server, sandbox) },
		"deleted": remove,
		"another pod": func(sandbox *v1alpha1.Sandbox) {
			e2btest.ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = "another" })
		},
		"closed runtime": func(sandbox *v1alpha1.Sandbox) {
			e2btest.ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) {
				meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{Type: v1alpha1.SandboxConditionRuntimeInitialized, Status: metav1.ConditionFalse, Reason: "Test"})
			})
		},
	} {
		sandbox, id := claimed(t, server, set)
		place(t, server, sandbox, watching.runtime)
		conn, reader, _ := watching.upgrade(t, "headers", id, proxy.RuntimePort)
		says(t, conn, reader, what)
		change(sandbox)
		ends(what, conn)
		says(t, otherConn, otherReader, what)
	}
	sandbox, id := claimed(t, server, set)
	conn, reader, _ := late.upgrade(t, "headers", id, port)
	otherConn, otherReader, _ = late.upgrade(t, "headers", other, port)
	remove(sandbox)
	says(t, conn, reader, "nothing has reported it yet")
	follow(t, lateTable)
	ends("not listed", conn)
	says(t, otherConn, otherReader, "listed")
}
