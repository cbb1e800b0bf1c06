// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	utilexec "k8s.io/client-go/util/exec"
	kubectlexec "k8s.io/kubectl/pkg/cmd/exec"
	"k8s.io/kubectl/pkg/util/interrupt"
	"k8s.io/kubectl/pkg/util/term"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb/processpbconnect"
)

const (
	// processNode is what status.nodeName says of a sandbox without a pod whose agent-runtime is a process.
	processNode = "processes"
	// inputChunk is how many bytes of input are sent at a time.
	inputChunk = 32 << 10
)

// runByRuntime runs a command in a sandbox without a pod, by its agent-runtime. The server forwards the calls.
func (s *session) runByRuntime(ctx context.Context, streams genericiooptions.IOStreams, sandbox *v1alpha1.Sandbox, r remote) error {
	if r.container != "" {
		return fmt.Errorf("sandbox %s/%s has no pod, and so no container %s: leave out --container", s.namespace, sandbox.Name, r.container)
	}
	token, err := s.runtimeToken(ctx, sandbox)
	if err != nil {
		return err
	}
	config := rest.CopyConfig(s.config)
	config.Timeout = 0 // a command takes as long as it takes
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	url := s.agents.RESTClient().Get().Namespace(s.namespace).Resource("sandboxes").Name(sandbox.Name).
		SubResource("proxy", strconv.Itoa(v1alpha1.DefaultRuntimePort)).URL().String()
	command := runtimeCommand{remote: r, client: processpbconnect.NewProcessClient(client, url), token: token}
	err = command.run(ctx, streams)
	if ctx.Err() != nil {
		return fmt.Errorf("%w while a command ran in sandbox %s/%s, where it may still run", interrupted, s.namespace, sandbox.Name)
	}
	return err
}

// runtimeCommand is a command that an agent-runtime runs.
type runtimeCommand struct {
	remote
	client processpbconnect.ProcessClient
	// token is the access token of the agent-runtime.
	token string
}

// run runs the command until it ends or ctx does. Its exit code is that of the error.
func (c *runtimeCommand) run(ctx context.Context, streams genericiooptions.IOStreams) error {
	options := kubectlexec.StreamOptions{
		Stdin: c.stdin, TTY: c.tty, Quiet: c.quiet, IOStreams: streams, InterruptParent: interrupt.New(func(os.Signal) {}),
	}
	terminal := options.SetupTTY()
	start := &processpb.StartRequest{
		Process: &processpb.ProcessConfig{Cmd: c.command[0], Args: c.command[1:]}, Stdin: new(options.Stdin && !terminal.Raw),
	}
	var sizes term.TerminalSizeQueue
	if terminal.Raw {
		size := terminal.GetSize()
		start.Pty, sizes = ptyOf(size), terminal.MonitorSize(size)
		start.Process.Envs = map[string]string{"TERM": cmp.Or(os.Getenv("TERM"), "xterm")}
	}
	return terminal.Safe(func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		events, err := c.client.Start(ctx, callOf(c.token, start))
		if err != nil {
			return fmt.Errorf("running %s: %w", c.command[0], err)
		}
		defer func() { _ = events.Close() }() // it was read to its end, or is given up
		began := func(pid uint32) {
			process := &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: pid}}
			if options.Stdin {
				go func() { // a read cannot be interrupted: it ends with this program
					if err := c.sendInput(ctx, process, options.In, terminal.Raw); err != nil {
						cancel(fmt.Errorf("sending the input of %s: %w", c.command[0], err))
					}
				}()
			}
			if sizes != nil {
				go c.resize(ctx, process, sizes) // ends with this program at the latest
			}
		}
		err = follow(options.IOStreams, events, c.command[0], began)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	})
}

// callOf returns a call of an agent-runtime.
func callOf[T any](token string, message *T) *connect.Request[T] {
	call := connect.NewRequest(message)
	call.Header().Set(v1alpha1.RuntimeTokenHeader, token)
	return call
}

func ptyOf(size *term.TerminalSize) *processpb.PTY {
	if size == nil {
		size = &term.TerminalSize{Width: 80, Height: 24}
	}
	return &processpb.PTY{Size: &processpb.PTY_Size{Cols: uint32(size.Width), Rows: uint32(size.Height)}}
}

// sendInput sends what it reads to a process, until one of them ends.
func (c *runtimeCommand) sendInput(ctx context.Context, process *processpb.ProcessSelector, in io.Reader, toPTY bool) error {
	buffer := make([]byte, inputChunk)
	for {
		n, failed := in.Read(buffer)
		if n > 0 {
			input := &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: buffer[:n]}}
			if toPTY {
				input.Input = &processpb.ProcessInput_Pty{Pty: buffer[:n]}
			}
			_, err := c.client.SendInput(ctx, callOf(c.token, &processpb.SendInputRequest{Process: process, Input: input}))
			if err != nil {
				return unlessEnded(err)
			}
		}
		switch {
		case failed == io.EOF && toPTY:
			return nil
		case failed == io.EOF:
			_, err := c.client.CloseStdin(ctx, callOf(c.token, &processpb.CloseStdinRequest{Process: process}))
			return unlessEnded(err)
		case failed != nil:
			return failed
		}
	}
}

// unlessEnded returns an error of a call about a process, unless the process has ended or reads no input any more.
func unlessEnded(err error) error {
	if code := connect.CodeOf(err); code == connect.CodeNotFound || code == connect.CodeFailedPrecondition {
		return nil
	}
	return err
}

// resize gives the terminal of a process the sizes of the one of this program.
func (c *runtimeCommand) resize(ctx context.Context, process *processpb.ProcessSelector, sizes term.TerminalSizeQueue) {
	for size := sizes.Next(); size != nil; size = sizes.Next() {
		// Without the new size, the command still runs.
		_, _ = c.client.Update(ctx, callOf(c.token, &processpb.UpdateRequest{Process: process, Pty: ptyOf(size)}))
	}
}

// follow calls began when a command has begun, and writes its output until it ends. Its exit code is that of the error.
func follow(
	streams genericiooptions.IOStreams, events *connect.ServerStreamForClient[processpb.StartResponse], name string, began func(pid uint32),
) error {
	var end *processpb.ProcessEvent_EndEvent
	for events.Receive() { // to the end of the stream, which follows that of the command
		event := events.Msg().GetEvent()
		if start := event.GetStart(); start != nil {
			began(start.GetPid())
		}
		output := event.GetData()
		for _, part := range []struct {
			to   io.Writer
			text []byte
		}{{streams.Out, output.GetStdout()}, {streams.Out, output.GetPty()}, {streams.ErrOut, output.GetStderr()}} {
			if len(part.text) == 0 {
				continue
			}
			if _, err := part.to.Write(part.text); err != nil {
				return err
			}
		}
		if event.GetEnd() != nil {
			end = event.GetEnd()
		}
	}
	switch {
	case end == nil && events.Err() != nil:
		return fmt.Errorf("running %s: %w", name, events.Err())
	case end == nil:
		return fmt.Errorf("the connection ended before %s did", name)
	}
	return errorOf(end, name)
}

// errorOf returns the error of a command that has ended, with the exit code that a shell and kubectl exec give it.
func errorOf(end *processpb.ProcessEvent_EndEvent, name string) error {
	code := int(end.GetExitCode())
	if !end.GetExited() {
		number := signalOf(end.GetStatus())
		if number == 0 {
			return fmt.Errorf("%s ended: %s", name, end.GetStatus())
		}
		code = 128 + number
	}
	if code == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
}

// signalOf returns the number of the signal that has ended a command, as its agent-runtime describes the end; 0 if there is
// none of that name.
func signalOf(status string) int {
	status = strings.TrimSuffix(status, " (core dumped)")
	for number := 1; number < 32; number++ {
		if status == "signal: "+syscall.Signal(number).String() {
			return number
		}
	}
	return 0
}

// runtimeToken returns the access token of the agent-runtime of a sandbox.
func (s *session) runtimeToken(ctx context.Context, sandbox *v1alpha1.Sandbox) (string, error) {
	claim := sandbox.Labels[v1alpha1.LabelClaimName]
	switch {
	case !v1alpha1.HasRuntimeToken(sandbox):
		return "", fmt.Errorf("sandbox %s/%s has no pod, and its agent-runtime has no access token: it takes no commands until POST /init sets one", s.namespace, sandbox.Name)
	case claim == "":
		return "", fmt.Errorf("sandbox %s/%s has no pod and no claim: only the agent-runtimes of claimed sandboxes take commands", s.namespace, sandbox.Name)
	}
	access := &v1alpha1.SandboxClaimRuntimeAccess{Spec: v1alpha1.SandboxClaimRuntimeAccessSpec{SandboxNames: []string{sandbox.Name}}}
	access, err := s.agents.SandboxClaims(s.namespace).RuntimeAccess(ctx, claim, access, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("getting access to the agent-runtime of sandbox %s/%s: %w", s.namespace, sandbox.Name, err)
	}
	for _, one := range access.Status.Sandboxes {
		if one.UID == sandbox.UID {
			return one.AccessToken, nil
		}
	}
	return "", fmt.Errorf("sandbox %s/%s has no agent-runtime: nothing runs in it", s.namespace, sandbox.Name)
}
