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

// errSnapshotInProgress rejects a defragmentation while a client reads a snapshot. The snapshot keeps
// the file open, so etcd would block all requests until the client has read it.
var errSnapshotInProgress = status.Error(codes.Unavailable, "a snapshot is being read")

// snapshotInterceptor delays snapshots until a running defragmentation has ended.
func (s *Server) snapshotInterceptor(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == snapshotMethod {
		s.snapshotLock.RLock()
		defer s.snapshotLock.RUnlock()
	}
	return handle(srv, stream)
}

// defragmentInterceptor rejects a defragmentation with errSnapshotInProgress while a snapshot is
// read.
func (s *Server) defragmentInterceptor(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if info.FullMethod == defragmentMethod {
		if !s.snapshotLock.TryLock() {
			return nil, errSnapshotInProgress
		}
		defer s.snapshotLock.Unlock()
	}
	return handle(ctx, request)
}
