// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot gives snapshots of the whole store of an API server, for backups.
package snapshot

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// Path is where a server that serves snapshots gives a GET a snapshot of its etcd: the file of
// its data, and the SHA-256 of that in the last 32 bytes.
const Path = "/sandlot/snapshot"

// timeout bounds one snapshot. While it is read, etcd cannot use space again that is freed.
const timeout = 30 * time.Minute

// IsRequest reports whether a request is for a snapshot. That takes as long as it takes.
func IsRequest(_ *http.Request, info *request.RequestInfo) bool {
	return !info.IsResourceRequest && info.Path == Path
}

// Handler gives snapshots. Who asks has been authorized by the path.
type Handler struct {
	// Etcd is what they are of.
	Etcd clientv3.Maintenance

	// busy is held while one is given: each costs etcd a reading of all its data.
	busy sync.Mutex
}

// ServeHTTP implements http.Handler.
func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "a snapshot can only be read", http.StatusMethodNotAllowed)
		return
	}
	if !s.busy.TryLock() {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "another snapshot is being taken", http.StatusTooManyRequests)
		return
	}
	defer s.busy.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	answer, err := s.Etcd.SnapshotWithVersion(ctx)
	if err != nil {
		http.Error(w, "etcd gives no snapshot: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer answer.Snapshot.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := io.Copy(w, answer.Snapshot); err != nil {
		klog.FromContext(ctx).Error(err, "A snapshot ended early")
		panic(http.ErrAbortHandler) // so that the client sees that it is not all
	}
}
