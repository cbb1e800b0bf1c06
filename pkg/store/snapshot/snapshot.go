// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot gives snapshots of the whole store of an API server, for backups.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Path is where a server that serves snapshots gives a GET a snapshot of its etcd: the file of
// its data, and the SHA-256 of that in the last 32 bytes.
const Path = "/sandlot/snapshot"

// RevisionHeader says which revision the store had come to before the snapshot was taken. One
// of a smaller revision is not of the newest data: its member of etcd was behind the others, or
// cut off from them.
const RevisionHeader = "Sandlot-Revision"

// timeout bounds one snapshot. While it is read, etcd cannot use space again that is freed.
const timeout = 30 * time.Minute

// patience is how long a client may take to read what is sent at a time. One that reads nothing
// would keep others from their snapshots, and etcd from being defragmented.
const patience = time.Minute

// catchUp is what members of etcd have to take in what the others know, once the revision is
// known. It is many times what they need.
const catchUp = time.Second

// IsRequest reports whether a request is for a snapshot. That takes as long as it takes.
func IsRequest(_ *http.Request, info *request.RequestInfo) bool {
	return !info.IsResourceRequest && info.Path == Path
}

// Etcd is what a client of etcd can do, as far as it is needed.
type Etcd interface {
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
	SnapshotWithVersion(ctx context.Context) (*clientv3.SnapshotResponse, error)
}

// Handler gives snapshots. Who asks has been authorized by the path.
type Handler struct {
	// Etcd is what they are of.
	Etcd Etcd

	// patience and catchUp are the constants of the names, or shorter in a test.
	patience, catchUp time.Duration
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
	answer, revision, err := s.take(ctx)
	if err != nil {
		http.Error(w, "etcd gives no snapshot: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer answer.Snapshot.Close()
	w.Header().Set(RevisionHeader, strconv.FormatInt(revision, 10))
	w.Header().Set("Content-Type", "application/octet-stream")
	to := &impatient{w: w, deadlines: http.NewResponseController(w), patience: cmp.Or(s.patience, patience)}
	if _, err := io.Copy(to, answer.Snapshot); err != nil {
		klog.FromContext(ctx).Error(err, "A snapshot ended early")
		panic(http.ErrAbortHandler) // so that the client sees that it is not all
	}
}

// take asks for a snapshot, of which any member of etcd gives its own data. So it asks the
// members together first which revision they have come to.
func (s *Handler) take(ctx context.Context) (*clientv3.SnapshotResponse, int64, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	now, err := s.Etcd.Get(ctx, Path, clientv3.WithCountOnly()) // of any key
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	case <-clock.RealClock{}.After(cmp.Or(s.catchUp, catchUp)):
	}
	answer, err := s.Etcd.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, 0, err
	}
	return answer, now.Header.Revision, nil
}

// impatient writes to a client as long as that reads.
type impatient struct {
	w         io.Writer
	deadlines *http.ResponseController
	patience  time.Duration
}

// Write implements io.Writer.
func (i *impatient) Write(p []byte) (int, error) {
	if err := i.deadlines.SetWriteDeadline(clock.RealClock{}.Now().Add(i.patience)); err != nil {
		return 0, fmt.Errorf("limiting the time of a write: %w", err)
	}
	return i.w.Write(p)
}
