// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

func TestProcesses(t *testing.T) {
	b := newBox(t)
	for text, want := range map[string]struct {
		stdout, stderr, status string
		code                   int32
	}{
		"echo out; echo err >&2; exit 3": {"out\n", "err\n", "exit status 3", 3},
		"echo $MODE":                     {secret + "\n", "", "exit status 0", 0},
		"kill -KILL $$":                  {"", "", "signal: killed", -1},
		"cat":                            {"", "", "exit status 0", 0}, // there is no input
	} {
		t.Run(text, func(t *testing.T) {
			e := b.start(t.Context(), t, as("", script(text))).wait(t)
			if e.stdout != want.stdout || e.stderr != want.stderr || e.GetStatus() != want.status || e.GetExitCode() != want.code ||
				e.GetExited() != (want.code >= 0) || (e.GetError() != "") != (want.code != 0) {
				t.Errorf("stdout %q, stderr %q, %v", e.stdout, e.stderr, e.ProcessEvent_EndEvent)
			}
		})
	}
	refused := func(name string, request *processpb.StartRequest, text string) {
		t.Run(name, func(t *testing.T) {
			stream, err := b.process.Start(t.Context(), as("", request))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if stream.Receive() {
				t.Error("it started")
			}
			wantCode(t, stream.Err(), connect.CodeInvalidArgument, text)
		})
	}
	refused("no such program", &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/none"}}, "no such file")
	refused("none in PATH", &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "none"}}, "it is in no folder of PATH")
	refused("no such folder", &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "sh", Cwd: new("/none")}}, "/none")
	refused("no command", &processpb.StartRequest{}, "no command")
	refused("a huge terminal", &processpb.StartRequest{
		Process: &processpb.ProcessConfig{Cmd: "sh"}, Pty: &processpb.PTY{Size: &processpb.PTY_Size{Cols: 1 << 20, Rows: 1}},
	}, "too large")
}

// Each process leads a session of its own, and so cannot leave its group, which signals and time
// limits are sent to.
func TestSessions(t *testing.T) {
	b := newBox(t)
	p := b.start(t.Context(), t, as("", script("set -- $(cat /proc/self/stat); echo $5 $6")))
	if e, want := p.wait(t), fmt.Sprintf("%d %d\n", p.pid, p.pid); e.stdout != want {
		t.Errorf("group and session are %q, want %q; %s", e.stdout, want, e.stderr)
	}
}

// Input is written in order, and its end ends the process.
func TestInput(t *testing.T) {
	b := newBox(t)
	request := &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "cat"}, Tag: new("the cat")}
	cat := b.start(t.Context(), t, as("", request))
	byTag := &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Tag{Tag: "the cat"}}
	stdin := func(text string) *processpb.ProcessInput {
		return &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte(text)}}
	}
	if _, err := b.process.SendInput(t.Context(), as("", &processpb.SendInputRequest{Process: byTag, Input: stdin("one ")})); err != nil {
		t.Fatal(err)
	}
	stream := b.process.StreamInput(t.Context())
	for _, message := range []*processpb.StreamInputRequest{
		{Event: &processpb.StreamInputRequest_Start{Start: &processpb.StreamInputRequest_StartEvent{Process: selector(cat.pid)}}},
		{Event: &processpb.StreamInputRequest_Data{Data: &processpb.StreamInputRequest_DataEvent{Input: stdin("two ")}}},
		{Event: &processpb.StreamInputRequest_Keepalive{}},
		{Event: &processpb.StreamInputRequest_Data{Data: &processpb.StreamInputRequest_DataEvent{Input: stdin("three")}}},
	} {
		if err := stream.Send(message); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	pty := &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte("x")}}
	_, err := b.process.SendInput(t.Context(), as("", &processpb.SendInputRequest{Process: selector(cat.pid), Input: pty}))
	wantCode(t, err, connect.CodeFailedPrecondition, "no such input")
	if _, err := b.process.CloseStdin(t.Context(), as("", &processpb.CloseStdinRequest{Process: selector(cat.pid)})); err != nil {
		t.Fatal(err)
	}
	if e := cat.wait(t); e.stdout != "one two three" || e.GetExitCode() != 0 {
		t.Errorf("%q, %v", e.stdout, e.ProcessEvent_EndEvent)
	}
	_, err = b.process.SendInput(t.Context(), as("", &processpb.SendInputRequest{Process: selector(cat.pid), Input: stdin("x")}))
	wantCode(t, err, connect.CodeNotFound, "not found")
}

// A write to a process that does not read ends with its request, and harms no later one.
func TestInputThatIsNotRead(t *testing.T) {
	b := newBox(t)
	dir := t.TempDir()
	request := script("mkfifo " + dir + "/go && read go <" + dir + "/go; wc -c")
	request.Stdin = nil
	p := b.start(t.Context(), t, as("", request))
	data := &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.process.SendInput(ctx, as("", &processpb.SendInputRequest{Process: selector(p.pid), Input: data}))
	wantCode(t, err, connect.CodeDeadlineExceeded, "")
	b.sh(t, "", "echo go >"+dir+"/go")
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		last := &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte("x")}}
		_, err := b.process.SendInput(ctx, as("", &processpb.SendInputRequest{Process: selector(p.pid), Input: last}))
		return err
	})
	if _, err := b.process.CloseStdin(t.Context(), as("", &processpb.CloseStdinRequest{Process: selector(p.pid)})); err != nil {
		t.Fatal(err)
	}
	if e := p.wait(t); e.GetExitCode() != 0 || strings.TrimSpace(e.stdout) == "0" {
		t.Errorf("%q, %v", e.stdout, e.ProcessEvent_EndEvent)
	}
}

// A process outlives its client, is listed, gives its output to others, and ends by a signal
// with its children.
func TestConnectListAndSignal(t *testing.T) {
	b := newBox(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	p := b.start(ctx, t, as("", script("sleep 600 & echo $! >"+dir+"/child; mkfifo "+dir+"/go; read go <"+dir+"/go; echo late; wait")))
	expect.Eventually(t.Context(), t, func(context.Context) error { _, err := os.Stat(dir + "/go"); return err })
	cancel()
	list := func() []*processpb.ProcessInfo {
		answer, err := b.process.List(t.Context(), as("", &processpb.ListRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Msg.GetProcesses()
	}
	if all := list(); len(all) != 1 || all[0].GetPid() != p.pid || all[0].GetConfig().GetCmd() != "/bin/sh" {
		t.Errorf("listed %v", all)
	}
	stream, err := b.process.Connect(t.Context(), as("", &processpb.ConnectRequest{Process: selector(p.pid)}))
	if err != nil || !stream.Receive() || stream.Msg().GetEvent().GetStart().GetPid() != p.pid {
		t.Fatalf("%v, %v", err, stream.Err())
	}
	defer stream.Close()
	b.sh(t, "", "echo go >"+dir+"/go")
	if !stream.Receive() || string(stream.Msg().GetEvent().GetData().GetStdout()) != "late\n" {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	kill := func(s processpb.Signal) error {
		_, err := b.process.SendSignal(t.Context(), as("", &processpb.SendSignalRequest{Process: selector(p.pid), Signal: s}))
		return err
	}
	wantCode(t, kill(processpb.Signal_SIGNAL_UNSPECIFIED), connect.CodeInvalidArgument, "signal")
	if err := kill(processpb.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || stream.Msg().GetEvent().GetEnd().GetStatus() != "signal: killed" {
		t.Errorf("%v, %v", stream.Msg(), stream.Err())
	}
	wantCode(t, kill(processpb.Signal_SIGNAL_SIGKILL), connect.CodeNotFound, "not found")
	child, err := os.ReadFile(dir + "/child")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
	if err != nil {
		t.Fatal(err)
	}
	eventuallyGone(t, pid)
	if all := list(); len(all) != 0 {
		t.Errorf("listed %v", all)
	}
}

// The client's time limit is the process's.
func TestTimeout(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	p := b.start(ctx, t, as("", script("exec sleep 600")))
	for p.stream.Receive() {
		// until the time is over
	}
	wantCode(t, p.stream.Err(), connect.CodeDeadlineExceeded, "")
	eventuallyGone(t, int(p.pid))
}

// A command that leaves a process behind with its output has ended, and that process lives.
func TestLeftBehind(t *testing.T) {
	b := newBox(t)
	file := t.TempDir() + "/out"
	p := b.start(t.Context(), t, as("", script("(read x; while sleep 0.05; do echo still; echo x >>"+file+"; done) </dev/null & echo $!")))
	e := p.wait(t)
	if e.GetExitCode() != 0 {
		t.Fatal(e.ProcessEvent_EndEvent)
	}
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if size() < before+10 {
			return errors.New("what was left behind does not run")
		}
		return nil
	})
	b.sh(t, "", "kill "+strings.Fields(e.stdout)[0])
}

// What has no parent any more is waited for.
func TestOrphansAreReaped(t *testing.T) {
	b := newBox(t)
	b.sh(t, "", "for i in 1 2 3 4 5; do (setsid true &) ; done; setsid sleep 0.1 >/dev/null &")
	expect.Eventually(t.Context(), t, func(context.Context) error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.Pid()))
		if err == nil && len(strings.Fields(string(children))) > 0 {
			return fmt.Errorf("there are children: %s", children)
		}
		out := childrenOf(b.Pid())
		if len(out) > 0 {
			return fmt.Errorf("there are children: %v", out)
		}
		return nil
	})
}

// childrenOf are the processes whose parent is one.
func childrenOf(parent int) []string {
	var all []string
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			all = append(all, string(text))
		}
	}
	return all
}

func TestTooManyProcesses(t *testing.T) {
	b := newBox(t)
	started := 0
	for ; started < 600; started++ {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := b.process.Start(ctx, as("", script("exec sleep 600")))
		if err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() {
			wantCode(t, stream.Err(), connect.CodeResourceExhausted, "512 processes")
			cancel()
			break
		}
		cancel()
		_ = stream.Close()
	}
	if started != 512 {
		t.Errorf("%d processes were started", started)
	}
	b.Stop(t)
}

// A client that does not read holds up its process, and takes no memory for what it misses.
func TestSlowReader(t *testing.T) {
	b := newBox(t)
	before, err := program.ReadMemory(b.Pid())
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/done"
	p := b.start(t.Context(), t, as("", script("head -c 500000000 /dev/zero; touch "+file)))
	for range 100 { // what others ask for is answered meanwhile
		if got := b.sh(t, "", "echo other"); got != "other" {
			t.Fatal(got)
		}
	}
	after, err := program.ReadMemory(b.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Peak - before.Resident; grown > 64<<20 {
		t.Errorf("it has taken %d MiB", grown>>20)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the process did not wait")
	}
	_ = p.stream.Close()
	if _, err := b.process.SendSignal(t.Context(), as("", &processpb.SendSignalRequest{Process: selector(p.pid), Signal: processpb.Signal_SIGNAL_SIGKILL})); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
}

func TestTerminal(t *testing.T) {
	b := newBox(t)
	request := &processpb.StartRequest{
		Process: &processpb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "stty size; read line; stty size; echo \"[$line]\"; exec sleep 600"}},
		Pty:     &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}},
	}
	p := b.start(t.Context(), t, as("", request))
	output := ""
	until := func(want string) {
		t.Helper()
		for !strings.Contains(output, want) {
			if !p.stream.Receive() {
				t.Fatalf("%v after %q", p.stream.Err(), output)
			}
			output += string(p.stream.Msg().GetEvent().GetData().GetPty())
		}
	}
	until("24 80")
	resized := &processpb.UpdateRequest{Process: selector(p.pid), Pty: &processpb.PTY{Size: &processpb.PTY_Size{Cols: 100, Rows: 30}}}
	if _, err := b.process.Update(t.Context(), as("", resized)); err != nil {
		t.Fatal(err)
	}
	input := &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte("typed\n")}}
	if _, err := b.process.SendInput(t.Context(), as("", &processpb.SendInputRequest{Process: selector(p.pid), Input: input})); err != nil {
		t.Fatal(err)
	}
	until("30 100")
	until("[typed]")
	_, err := b.process.CloseStdin(t.Context(), as("", &processpb.CloseStdinRequest{Process: selector(p.pid)}))
	wantCode(t, err, connect.CodeFailedPrecondition, "Ctrl-D")
	interrupt := &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte{3}}}
	if _, err := b.process.SendInput(t.Context(), as("", &processpb.SendInputRequest{Process: selector(p.pid), Input: interrupt})); err != nil {
		t.Fatal(err)
	}
	if e := p.wait(t); e.GetStatus() != "signal: interrupt" {
		t.Errorf("%v", e.ProcessEvent_EndEvent)
	}
}
