// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The methods by which a client reads a snapshot and defragments the database file.
const (
	snapshotMethod   = "/etcdserverpb.Maintenance/Snapshot"
	defragmentMethod = "/etcdserverpb.Maintenance/Defragment"
)

// errSnapshotInProgress rejects a defragmentation while a client reads a snapshot, which keeps the
// file open. etcd would wait for the end of it and answer no other request.
var errSnapshotInProgress = status.Error(codes.Unavailable, "a snapshot is being read")

// holdSnapshots lets a client read a snapshot only while the file is not being defragmented.
func (s *Server) holdSnapshots(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == snapshotMethod {
		s.reading.RLock()
		defer s.reading.RUnlock()
	}
	return handle(srv, stream)
}

// holdDefragmentations rejects a defragmentation with errSnapshotInProgress while a snapshot is
// read.
func (s *Server) holdDefragmentations(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if info.FullMethod == defragmentMethod {
		if !s.reading.TryLock() {
			return nil, errSnapshotInProgress
		}
		defer s.reading.Unlock()
	}
	return handle(ctx, request)
}
