// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process serves the process service of envd: it starts processes as the user that
// a request names, and lets requests read and write what they read and write.
//
// A process outlives the request that started it, and ends with the program. Its output is
// kept nowhere: a reader that is slow slows the process down, and one that comes later gets
// what comes later.
package process

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/access"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/streams"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/users"
)

// Service is the process service.
type Service struct {
	manager *Manager
	access  *access.State
	streams *streams.Limit
	clock   clock.WithTicker
}

// NewService returns the service of the processes of a Manager.
func NewService(m *Manager, a *access.State, s *streams.Limit) *Service {
	return &Service{manager: m, access: a, streams: s, clock: m.clock}
}

// Start starts a process, and follows it until it has ended or the client is gone.
func (s *Service) Start(ctx context.Context, req *connect.Request[processpb.StartRequest], stream *connect.ServerStream[processpb.StartResponse]) error {
	done, err := s.streams.Begin()
	if err != nil {
		return err
	}
	defer done()
	name, folder := s.access.Defaults()
	user, err := users.Of(req.Header(), name)
	if err != nil {
		return err
	}
	p, r, err := s.manager.Start(ctx, Spec{Request: req.Msg, User: user, Env: s.access.Env(), Folder: folder, Limit: limitOf(req.Header())})
	if err != nil {
		return startError(err)
	}
	defer r.Close()
	return s.follow(ctx, p, r, req.Header(), func(event *processpb.ProcessEvent) error {
		return stream.Send(&processpb.StartResponse{Event: event})
	})
}

// Connect follows a process that runs.
func (s *Service) Connect(ctx context.Context, req *connect.Request[processpb.ConnectRequest], stream *connect.ServerStream[processpb.ConnectResponse]) error {
	done, err := s.streams.Begin()
	if err != nil {
		return err
	}
	defer done()
	p, err := s.manager.Find(req.Msg.GetProcess())
	if err != nil {
		return err
	}
	r, err := p.Read()
	if err != nil {
		return connect.NewError(connect.CodeResourceExhausted, err)
	}
	defer r.Close()
	return s.follow(ctx, p, r, req.Header(), func(event *processpb.ProcessEvent) error {
		return stream.Send(&processpb.ConnectResponse{Event: event})
	})
}

// limitOf is how long a process may run: as long as the client waits for it.
func limitOf(header http.Header) time.Duration {
	milliseconds, err := strconv.ParseInt(header.Get("Connect-Timeout-Ms"), 10, 40)
	if err != nil || milliseconds < 0 {
		return 0
	}
	return time.Duration(milliseconds) * time.Millisecond
}

// startError says with which code a process was not started.
func startError(err error) error {
	code := connect.CodeInvalidArgument
	switch {
	case errors.Is(err, ErrTooMany), errors.Is(err, users.ErrBusy), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		code = connect.CodeResourceExhausted
	case errors.Is(err, errStopped):
		code = connect.CodeUnavailable
	case errors.Is(err, os.ErrPermission), errors.Is(err, users.ErrNotAllowed):
		code = connect.CodePermissionDenied
	}
	return connect.NewError(code, err)
}

// follow sends the events of a process.
func (s *Service) follow(ctx context.Context, p *Process, r *Reader, header http.Header, send func(*processpb.ProcessEvent) error) error {
	alive := s.clock.NewTicker(streams.KeepAlive(header))
	defer alive.Stop()
	if err := send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: uint32(p.PID)}}}); err != nil {
		return err
	}
	output := func(data *processpb.ProcessEvent_DataEvent) error {
		return send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: data}})
	}
	for {
		select {
		case data := <-r.Output:
			if err := output(data); err != nil {
				return err
			}
		case <-p.Ended():
			for len(r.Output) > 0 {
				if err := output(<-r.Output); err != nil {
					return err
				}
			}
			return send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: p.End()}})
		case <-alive.C():
			if err := send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Keepalive{Keepalive: &processpb.ProcessEvent_KeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// List returns the processes that run.
func (s *Service) List(context.Context, *connect.Request[processpb.ListRequest]) (*connect.Response[processpb.ListResponse], error) {
	return connect.NewResponse(&processpb.ListResponse{Processes: s.manager.List()}), nil
}

// Update sets the size of a terminal.
func (s *Service) Update(_ context.Context, req *connect.Request[processpb.UpdateRequest]) (*connect.Response[processpb.UpdateResponse], error) {
	p, err := s.manager.Find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		if err := p.Resize(size); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	return connect.NewResponse(&processpb.UpdateResponse{}), nil
}

// SendInput writes input to a process.
func (s *Service) SendInput(ctx context.Context, req *connect.Request[processpb.SendInputRequest]) (*connect.Response[processpb.SendInputResponse], error) {
	p, err := s.manager.Find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := write(ctx, p, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&processpb.SendInputResponse{}), nil
}

// StreamInput writes input to the process that its first message names.
func (s *Service) StreamInput(ctx context.Context, stream *connect.ClientStream[processpb.StreamInputRequest]) (*connect.Response[processpb.StreamInputResponse], error) {
	done, err := s.streams.Begin()
	if err != nil {
		return nil, err
	}
	defer done()
	var p *Process
	for stream.Receive() {
		switch event := stream.Msg().GetEvent().(type) {
		case *processpb.StreamInputRequest_Start:
			if p, err = s.manager.Find(event.Start.GetProcess()); err != nil {
				return nil, err
			}
		case *processpb.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first message names no process"))
			}
			if err := write(ctx, p, event.Data.GetInput()); err != nil {
				return nil, err
			}
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&processpb.StreamInputResponse{}), nil
}

func write(ctx context.Context, p *Process, input *processpb.ProcessInput) error {
	var err error
	switch input := input.GetInput().(type) {
	case *processpb.ProcessInput_Stdin:
		err = p.Write(ctx, false, input.Stdin)
	case *processpb.ProcessInput_Pty:
		err = p.Write(ctx, true, input.Pty)
	}
	return inputError(err)
}

func inputError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errNoInput):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}

// SendSignal sends a signal to a process and its group.
func (s *Service) SendSignal(_ context.Context, req *connect.Request[processpb.SendSignalRequest]) (*connect.Response[processpb.SendSignalResponse], error) {
	p, err := s.manager.Find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	signal := syscall.Signal(req.Msg.GetSignal())
	if signal != syscall.SIGTERM && signal != syscall.SIGKILL {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL"))
	}
	switch err := p.Signal(signal); {
	case errors.Is(err, errEnded):
		return nil, connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, syscall.EPERM):
		return nil, connect.NewError(connect.CodePermissionDenied, err)
	case err != nil:
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&processpb.SendSignalResponse{}), nil
}

// CloseStdin closes the standard input of a process.
func (s *Service) CloseStdin(ctx context.Context, req *connect.Request[processpb.CloseStdinRequest]) (*connect.Response[processpb.CloseStdinResponse], error) {
	p, err := s.manager.Find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := p.CloseInput(ctx); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewResponse(&processpb.CloseStdinResponse{}), nil
}
