// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/filesystempb/filesystempbconnect"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb/processpbconnect"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// token is that of the runtimes, and secret a value of their environment.
const token, secret = "the-token", "the-secret"

// programs is the folder of the program under test.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "sandlot-runtime-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	// Other users run it.
	if err := errors.Join(program.Build(programs, "sandlot-runtime"), os.Chmod(programs, 0o755)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// box is a running program, and clients of it.
type box struct {
	*program.Process
	base    string
	token   string
	process processpbconnect.ProcessClient
	files   filesystempbconnect.FilesystemClient
}

// startBox starts the program.
func startBox(t *testing.T) *box {
	t.Helper()
	p := program.Run(t, programs, "sandlot-runtime", "serve", "--address", "127.0.0.1", "--port", "0")
	return connectTo(t, p, awaitAddress(t, p))
}

// awaitAddress returns where a program listens first.
func awaitAddress(t *testing.T, p *program.Process) string {
	t.Helper()
	var address string
	expect.Eventually(t.Context(), t, func(context.Context) error {
		line, _, ok := strings.Cut(p.Stdout.String(), "\n")
		if !ok {
			return errors.New("it does not listen: " + p.Stderr.String())
		}
		address, _, _ = strings.Cut(strings.TrimPrefix(line, "sandlot-runtime listens on "), " and ")
		return nil
	})
	return address
}

func connectTo(t *testing.T, p *program.Process, address string) *box {
	t.Helper()
	b := &box{Process: p, base: "http://" + address}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: withToken{b, transport}}
	b.process = processpbconnect.NewProcessClient(client, b.base)
	b.files = filesystempbconnect.NewFilesystemClient(client, b.base)
	return b
}

// newBox starts the program and sets its token.
func newBox(t *testing.T) *box {
	t.Helper()
	b := startBox(t)
	if status, body := b.do(t, http.MethodPost, "/init", `{"accessToken":"`+token+`","envVars":{"MODE":"`+secret+`"}}`); status != http.StatusNoContent {
		t.Fatalf("/init: %d %s", status, body)
	}
	b.token = token
	return b
}

// withToken sends the token of a box with each request.
type withToken struct {
	*box
	http.RoundTripper
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.token != "" {
		r.Header.Set("X-Access-Token", w.token)
	}
	return w.RoundTripper.RoundTrip(r)
}

// do makes a request; a header is of the form "name: value".
func (b *box) do(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if b.token != "" {
		req.Header.Set("X-Access-Token", b.token)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// as makes a request one of a user.
func as[T any](user string, message *T) *connect.Request[T] {
	req := connect.NewRequest(message)
	if user != "" {
		r := &http.Request{Header: req.Header()}
		r.SetBasicAuth(user, "")
	}
	return req
}

// script is a request for a shell that runs it.
func script(text string) *processpb.StartRequest {
	return &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", text}, Cwd: new("/")}, Stdin: new(false)}
}

// running is a process that was started.
type running struct {
	pid    uint32
	stream *connect.ServerStreamForClient[processpb.StartResponse]
}

func (b *box) start(ctx context.Context, t *testing.T, req *connect.Request[processpb.StartRequest]) running {
	t.Helper()
	stream, err := b.process.Start(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	if !stream.Receive() {
		t.Fatalf("it did not start: %v", stream.Err())
	}
	return running{stream.Msg().GetEvent().GetStart().GetPid(), stream}
}

// ended is what a process wrote, and how it ended.
type ended struct {
	stdout, stderr, pty string
	*processpb.ProcessEvent_EndEvent
}

func (r running) wait(t *testing.T) ended {
	t.Helper()
	var e ended
	for r.stream.Receive() {
		event := r.stream.Msg().GetEvent()
		e.stdout += string(event.GetData().GetStdout())
		e.stderr += string(event.GetData().GetStderr())
		e.pty += string(event.GetData().GetPty())
		if event.GetEnd() != nil {
			e.ProcessEvent_EndEvent = event.GetEnd()
		}
	}
	if e.ProcessEvent_EndEvent == nil {
		t.Fatalf("no end: %v; stdout %q, stderr %q", r.stream.Err(), e.stdout, e.stderr)
	}
	return e
}

// sh runs a script as a user and requires that it ends well.
func (b *box) sh(t *testing.T, user, text string) string {
	t.Helper()
	e := b.start(t.Context(), t, as(user, script(text))).wait(t)
	if e.GetExitCode() != 0 || e.stderr != "" {
		t.Fatalf("%s: %s; stderr %q", text, e.GetStatus(), e.stderr)
	}
	return strings.TrimSpace(e.stdout)
}

func selector(pid uint32) *processpb.ProcessSelector {
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: pid}}
}

// eventuallyGone waits until there is no process of a number, or only its zombie, which is
// for its parent to deal with.
func eventuallyGone(t *testing.T, pid int) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err == nil && !bytes.Contains(stat, []byte(") Z ")) {
			return fmt.Errorf("process %d is still there: %s", pid, stat)
		}
		return nil
	})
}

// needRoot reports whether the test can act as other users.
func needRoot(t *testing.T) bool {
	t.Helper()
	if syscall.Getuid() != 0 {
		t.Log("NOT TESTED: this test acts as other users, so it needs root")
	}
	return syscall.Getuid() == 0
}

// wantCode requires an error of connect.
func wantCode(t *testing.T, err error, code connect.Code, text string) {
	t.Helper()
	if connect.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%v, want %s with %q", err, code, text)
	}
}
