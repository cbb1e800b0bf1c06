// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb/processpbconnect"
)

// fakeRuntime is an agent-runtime in which a command writes what it reads, and then ends.
type fakeRuntime struct {
	processpbconnect.UnimplementedProcessHandler
	// input has what was sent. It is closed with the standard input.
	input chan []byte
	// started is what was asked for.
	started *processpb.StartRequest
	end     *processpb.ProcessEvent_EndEvent
	// failure is what the input is answered with.
	failure error
}

const fakePID = 7

func (f *fakeRuntime) Start(ctx context.Context, req *connect.Request[processpb.StartRequest], stream *connect.ServerStream[processpb.StartResponse]) error {
	if token := req.Header().Get(v1alpha1.RuntimeTokenHeader); token != "token" {
		return connect.NewError(connect.CodeUnauthenticated, errors.New(token))
	}
	if req.Msg.GetProcess().GetCmd() == "absent" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("there is no absent"))
	}
	f.started = req.Msg
	send := func(event *processpb.ProcessEvent) error { return stream.Send(&processpb.StartResponse{Event: event}) }
	err := send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: fakePID}}})
	for open := req.Msg.GetStdin(); open && err == nil; {
		var text []byte
		select {
		case text, open = <-f.input:
			data := &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: text}}
			err = send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: data}})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(err, send(&processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: f.end}}))
}

func (f *fakeRuntime) SendInput(_ context.Context, req *connect.Request[processpb.SendInputRequest]) (*connect.Response[processpb.SendInputResponse], error) {
	if req.Msg.GetProcess().GetPid() == fakePID && f.failure == nil {
		f.input <- req.Msg.GetInput().GetStdin()
	}
	return connect.NewResponse(&processpb.SendInputResponse{}), f.failure
}

func (f *fakeRuntime) CloseStdin(context.Context, *connect.Request[processpb.CloseStdinRequest]) (*connect.Response[processpb.CloseStdinResponse], error) {
	close(f.input)
	return connect.NewResponse(&processpb.CloseStdinResponse{}), nil
}

// exec runs a command by the runtime, and returns what it wrote.
func (f *fakeRuntime) exec(t *testing.T, r remote, input string) (string, error) {
	t.Helper()
	_, handler := processpbconnect.NewProcessHandler(f)
	server := httptest.NewServer(handler)
	defer server.Close()
	f.input = make(chan []byte, 10)
	var out bytes.Buffer
	command := runtimeCommand{remote: r, client: processpbconnect.NewProcessClient(server.Client(), server.URL), token: "token"}
	err := command.run(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(input), Out: &out, ErrOut: &out})
	return out.String(), err
}

// TestInputByRuntime: the input is passed with -i only, and to its end. Without a terminal there is none for the command.
func TestInputByRuntime(t *testing.T) {
	f := &fakeRuntime{end: &processpb.ProcessEvent_EndEvent{Exited: true}}
	input := strings.Repeat("0123456789", inputChunk/4)
	if out, err := f.exec(t, remote{command: []string{"cat"}, stdin: true, tty: true, quiet: true}, input); err != nil || out != input {
		t.Errorf("it wrote %d bytes of %d: %v", len(out), len(input), err)
	}
	if f.started.GetPty() != nil {
		t.Error("it has a terminal")
	}
	if out, err := f.exec(t, remote{command: []string{"cat"}}, input); err != nil || out != "" || f.started.Stdin == nil || f.started.GetStdin() {
		t.Errorf("without -i it wrote %q, and was started as %v: %v", out, f.started, err)
	}

	// A command that reads no more input runs on. Input that is lost ends it.
	f.failure = connect.NewError(connect.CodeUnavailable, errors.New("broken"))
	if _, err := f.exec(t, remote{command: []string{"cat"}, stdin: true}, input); err == nil || !strings.Contains(err.Error(), "sending the input of cat: unavailable: broken") {
		t.Errorf("error of lost input: %v", err)
	}
	for code, want := range map[connect.Code]bool{connect.CodeNotFound: true, connect.CodeFailedPrecondition: true, connect.CodeUnavailable: false} {
		if got := unlessEnded(connect.NewError(code, errors.New("x"))) == nil; got != want {
			t.Errorf("an input that is answered with %s is the end of the command: %v", code, got)
		}
	}
}

// TestEndByRuntime: the exit code is that of kubectl exec, also after a signal.
func TestEndByRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		command string
		end     *processpb.ProcessEvent_EndEvent
		code    int
		want    string
	}{
		"success":    {"true", &processpb.ProcessEvent_EndEvent{Exited: true}, 0, ""},
		"failure":    {"false", &processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: 7}, 7, "command terminated with exit code 7"},
		"killed":     {"sh", &processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed"}, 137, "command terminated with exit code 137"},
		"dumped":     {"sh", &processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: segmentation fault (core dumped)"}, 139, "exit code 139"},
		"unknown":    {"sh", &processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: tired"}, 1, "sh ended: signal: tired"},
		"no command": {"absent", nil, 1, "running absent: invalid_argument: there is no absent"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeRuntime{end: test.end}
			_, err := f.exec(t, remote{command: []string{test.command}}, "")
			code := 0
			if remote, ok := errors.AsType[utilexec.CodeExitError](err); ok {
				code = remote.Code
			} else if err != nil {
				code = 1
			}
			if code != test.code || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("exit code %d: %v", code, err)
			}
		})
	}
}

// TestContainerByRuntime: a process has no containers.
func TestContainerByRuntime(t *testing.T) {
	s := &session{namespace: "ns"}
	sandbox := &v1alpha1.Sandbox{}
	sandbox.Name = "box"
	err := s.runByRuntime(t.Context(), genericiooptions.IOStreams{}, sandbox, remote{command: []string{"true"}, container: "main"})
	if err == nil || !strings.Contains(err.Error(), "leave out --container") {
		t.Errorf("error is %v", err)
	}
}
