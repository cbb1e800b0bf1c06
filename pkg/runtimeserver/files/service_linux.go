// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package files serves the filesystem service of envd, and uploads and downloads: the files
// of the container, as the user that a request names sees them.
package files

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/access"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/streams"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/users"
)

// Bounds of a list: its entries, and the length of their paths together.
const (
	maxEntries   = 20_000
	maxPathBytes = 8 << 20
)

var errTooManyEntries = fmt.Errorf("there are more than %d entries, or more than %d bytes of paths: list folders further down, or with a smaller depth", maxEntries, maxPathBytes)

// Service is the filesystem service.
type Service struct {
	access   *access.State
	streams  *streams.Limit
	clock    clock.WithTicker
	watchers *watchers
}

// NewService returns the service. Close ends its watchers.
func NewService(a *access.State, s *streams.Limit, c clock.WithTicker) *Service {
	return &Service{access: a, streams: s, clock: c, watchers: newWatchers(c)}
}

// Close ends the watchers.
func (s *Service) Close() { s.watchers.close() }

// userOf returns the user of a request and the absolute form of paths.
func userOf(a *access.State, header http.Header, paths ...*string) (users.User, error) {
	name, folder := a.Defaults()
	u, err := users.Of(header, name)
	if err != nil {
		return u, err
	}
	for _, path := range paths {
		if *path, err = u.Absolute(*path, folder); err != nil {
			return u, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	return u, nil
}

// asError gives errors of the system a code of connect.
func asError(err error) error {
	if err == nil || connect.CodeOf(err) != connect.CodeUnknown {
		return err
	}
	code := connect.CodeInternal
	for _, known := range []struct {
		is   error
		code connect.Code
	}{
		{os.ErrNotExist, connect.CodeNotFound},
		{os.ErrExist, connect.CodeAlreadyExists},
		{os.ErrPermission, connect.CodePermissionDenied},
		{users.ErrNotAllowed, connect.CodePermissionDenied},
		{syscall.EROFS, connect.CodePermissionDenied},
		{syscall.ENOTDIR, connect.CodeInvalidArgument},
		{syscall.EISDIR, connect.CodeInvalidArgument},
		{syscall.EINVAL, connect.CodeInvalidArgument},
		{syscall.ELOOP, connect.CodeInvalidArgument},
		{syscall.ENAMETOOLONG, connect.CodeInvalidArgument},
		{syscall.EXDEV, connect.CodeFailedPrecondition},
		{syscall.EBUSY, connect.CodeFailedPrecondition},
		{syscall.ENOSPC, connect.CodeResourceExhausted},
		{syscall.EDQUOT, connect.CodeResourceExhausted},
		{errTooManyEntries, connect.CodeResourceExhausted},
		{users.ErrBusy, connect.CodeResourceExhausted},
	} {
		if errors.Is(err, known.is) {
			code = known.code
			break
		}
	}
	return connect.NewError(code, err)
}

// Stat describes a path.
func (s *Service) Stat(ctx context.Context, req *connect.Request[filesystempb.StatRequest]) (*connect.Response[filesystempb.StatResponse], error) {
	path := req.Msg.GetPath()
	u, err := userOf(s.access, req.Header(), &path)
	if err != nil {
		return nil, err
	}
	answer := &filesystempb.StatResponse{}
	err = u.Do(ctx, func() error {
		answer.Entry, err = newDescriber().entry(path)
		return err
	})
	return connect.NewResponse(answer), asError(err)
}

// MakeDir makes a folder and those above it, which belong to the user.
func (s *Service) MakeDir(ctx context.Context, req *connect.Request[filesystempb.MakeDirRequest]) (*connect.Response[filesystempb.MakeDirResponse], error) {
	path := req.Msg.GetPath()
	u, err := userOf(s.access, req.Header(), &path)
	if err != nil {
		return nil, err
	}
	answer := &filesystempb.MakeDirResponse{}
	err = u.Do(ctx, func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			if info, statErr := os.Stat(path); statErr == nil && !info.IsDir() {
				return fmt.Errorf("mkdir %s: %w", path, syscall.ENOTDIR)
			}
			return err
		}
		answer.Entry, err = newDescriber().entry(path)
		return err
	})
	return connect.NewResponse(answer), asError(err)
}

// Move renames a path. The folder that it comes to is made.
func (s *Service) Move(ctx context.Context, req *connect.Request[filesystempb.MoveRequest]) (*connect.Response[filesystempb.MoveResponse], error) {
	from, to := req.Msg.GetSource(), req.Msg.GetDestination()
	u, err := userOf(s.access, req.Header(), &from, &to)
	if err != nil {
		return nil, err
	}
	answer := &filesystempb.MoveResponse{}
	err = u.Do(ctx, func() error {
		if _, err := os.Lstat(from); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
		answer.Entry, err = newDescriber().entry(to)
		return err
	})
	return connect.NewResponse(answer), asError(err)
}

// ListDir lists what is below a folder, down to a depth; 1 is what is in it.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[filesystempb.ListDirRequest]) (*connect.Response[filesystempb.ListDirResponse], error) {
	path := req.Msg.GetPath()
	u, err := userOf(s.access, req.Header(), &path)
	if err != nil {
		return nil, err
	}
	l := lister{describer: newDescriber()}
	err = u.Do(ctx, func() error { return l.list(path, max(req.Msg.GetDepth(), 1)) })
	return connect.NewResponse(&filesystempb.ListDirResponse{Entries: l.entries}), asError(err)
}

// Remove removes a path and all below it. It is no error if there is none.
func (s *Service) Remove(ctx context.Context, req *connect.Request[filesystempb.RemoveRequest]) (*connect.Response[filesystempb.RemoveResponse], error) {
	path := req.Msg.GetPath()
	u, err := userOf(s.access, req.Header(), &path)
	if err != nil {
		return nil, err
	}
	if path == "/" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the root folder cannot be removed"))
	}
	err = u.Do(ctx, func() error { return removeAll(path) })
	return connect.NewResponse(&filesystempb.RemoveResponse{}), asError(err)
}
