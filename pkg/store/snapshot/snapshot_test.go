// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// piped is an etcd at revision 7 whose snapshots a test writes.
type piped struct {
	snapshots chan io.ReadCloser
}

func (piped) Get(_ context.Context, _ string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet("", opts...).IsSerializable() {
		return nil, errors.New("a member may answer by itself")
	}
	return &clientv3.GetResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}}, nil
}

// SnapshotWithVersion is asked of members that have a leader.
func (p piped) SnapshotWithVersion(ctx context.Context) (*clientv3.SnapshotResponse, error) {
	asks, _ := metadata.FromOutgoingContext(ctx)
	if got := asks.Get(rpctypes.MetadataRequireLeaderKey); !slices.Equal(got, []string{rpctypes.MetadataHasLeader}) {
		return nil, fmt.Errorf("a member without a leader may answer: %v", asks)
	}
	r, ok := <-p.snapshots
	if !ok {
		return nil, errors.New("no leader")
	}
	return &clientv3.SnapshotResponse{Snapshot: r}, nil
}

// TestOneAtATime: a snapshot is all or an error, and a second one has to wait.
func TestOneAtATime(t *testing.T) {
	etcd := piped{snapshots: make(chan io.ReadCloser, 1)}
	server := httptest.NewServer(&Handler{Etcd: etcd, catchUp: time.Millisecond})
	defer server.Close()
	ask := func(method string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	if got := ask(http.MethodPost); got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", got.Status)
	}

	r, w := io.Pipe()
	etcd.snapshots <- r
	go func() { // ends with the pipe
		_, _ = w.Write(make([]byte, 64<<10)) // more than is kept back
	}()
	first := ask(http.MethodGet)
	if first.StatusCode != http.StatusOK {
		t.Fatalf("GET: %s", first.Status)
	}
	if got := first.Header.Get(RevisionHeader); got != "7" {
		t.Errorf("%s: %q", RevisionHeader, got)
	}
	if second := ask(http.MethodGet); second.StatusCode != http.StatusTooManyRequests || second.Header.Get("Retry-After") == "" {
		t.Errorf("a second at the same time: %s, %v", second.Status, second.Header)
	}
	w.CloseWithError(errors.New("etcd has gone"))
	if _, err := io.ReadAll(first.Body); err == nil {
		t.Error("a snapshot that ended early looks whole")
	}

	r, w = io.Pipe()
	etcd.snapshots <- r
	go func() { // ends with the pipe
		_, _ = w.Write([]byte("all"))
		w.Close()
	}()
	third := ask(http.MethodGet)
	if content, err := io.ReadAll(third.Body); err != nil || string(content) != "all" {
		t.Errorf("the next: %s, %q, %v", third.Status, content, err)
	}
	close(etcd.snapshots)
	if got := ask(http.MethodGet); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without etcd: %s", got.Status)
	}
}

// endless is a snapshot that has no end.
type endless struct{ closed chan struct{} }

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func (e endless) Close() error {
	close(e.closed)
	return nil
}

// TestClientThatReadsNothing: a client that asks for a snapshot and does not read it holds it
// for a while only, by either version of HTTP.
func TestClientThatReadsNothing(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			etcd := piped{snapshots: make(chan io.ReadCloser, 1)}
			server := httptest.NewUnstartedServer(&Handler{Etcd: etcd, patience: 10 * time.Millisecond, catchUp: time.Millisecond})
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			snapshot := endless{make(chan struct{})}
			etcd.snapshots <- snapshot
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+Path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.Proto != name {
				t.Errorf("it is %s", response.Proto)
			}
			select {
			case <-snapshot.closed:
			case <-time.After(time.Minute):
				t.Error("the snapshot is held")
			}
		})
	}
}
