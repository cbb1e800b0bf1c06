// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// upkeep says when the file of the data is written anew, without the space that is free in
// it. The API server compacts etcd; that frees space in the file, which etcd uses again but
// never gives back.
//
// Nothing is read or written meanwhile, about a second for 200 MB in use. So it must be
// worth it, and not be what etcd does most of the time.
type upkeep struct {
	// look is how often the file is looked at, and rest how long nothing is done after it
	// has been written.
	look, rest time.Duration
	// free is how many bytes have to be free, and as many as are in use.
	free int64
}

var defaultUpkeep = upkeep{look: time.Minute, rest: time.Hour, free: 256 << 20}

// worthwhile reports whether a file of a size, of which a part is in use, should be written
// anew. rested means that this has not been done for a while. The quota counts the size, not
// the part: so a file near the quota is not left to fill up because little is free in it, or
// because it has been written lately.
func (u upkeep) worthwhile(size, inUse, quota int64, rested bool) bool {
	free, near := size-inUse, size > quota/4*3
	return free >= inUse && (near || rested && free >= u.free)
}

// keepUp defragments until ctx is done.
func (s *Server) keepUp(ctx context.Context, u upkeep) {
	for rest := time.Duration(0); ctx.Err() == nil; rest -= u.look {
		backend := s.etcd.Server.Backend()
		if alarms := s.alarms(); len(alarms) > 0 {
			s.makeRoom(ctx, alarms)
		} else if u.worthwhile(backend.Size(), backend.SizeInUse(), s.quota, rest <= 0) {
			err := s.defragment()
			if !errors.Is(err, errSnapshotInProgress) {
				rest = u.rest
			}
			s.logDefragmentation(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(u.look, 0.1)):
		}
	}
}

// errSnapshotInProgress means that a client reads a snapshot, which keeps the file open. etcd
// would wait for the end of it and answer no other request.
var errSnapshotInProgress = errors.New("a snapshot is being read")

// logDefragmentation logs why defragment did not succeed. It does nothing if err is nil.
func (s *Server) logDefragmentation(err error) {
	switch {
	case errors.Is(err, errSnapshotInProgress):
		klog.V(2).InfoS("Postponed the defragmentation of the embedded etcd", "dir", s.etcdDir(), "reason", err)
	case err != nil:
		klog.ErrorS(err, "Failed to defragment the embedded etcd", "dir", s.etcdDir())
	}
}

// defragment defragments the file. It returns errSnapshotInProgress without having tried.
func (s *Server) defragment() error {
	if !s.reading.TryLock() {
		return errSnapshotInProgress
	}
	defer s.reading.Unlock()
	backend := s.etcd.Server.Backend()
	before := backend.Size()
	if err := s.etcd.Server.Defragment(); err != nil {
		return fmt.Errorf("defragmenting a file of %d bytes: %w", before, err)
	}
	klog.InfoS("Defragmented the embedded etcd", "dir", s.etcdDir(), "before", before, "after", backend.Size())
	return nil
}

// snapshotMethod is how a client asks for a snapshot.
const snapshotMethod = "/etcdserverpb.Maintenance/Snapshot"

// holdSnapshots keeps the file from being defragmented while a client reads a snapshot of it.
func (s *Server) holdSnapshots(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == snapshotMethod {
		s.reading.RLock()
		defer s.reading.RUnlock()
	}
	return handle(srv, stream)
}
