// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"

	"connectrpc.com/connect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/processpb/processpbconnect"
)

// runByRuntime runs a command in a sandbox without a pod, by its agent-runtime. The server forwards the calls.
func (s *session) runByRuntime(ctx context.Context, streams genericiooptions.IOStreams, sandbox *v1alpha1.Sandbox, r remote) error {
	if r.stdin || r.tty {
		return fmt.Errorf("sandbox %s/%s has no pod: a command that runs by its agent-runtime has no input and no terminal", s.namespace, sandbox.Name)
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
	start := connect.NewRequest(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: r.command[0], Args: r.command[1:]}})
	start.Header().Set(v1alpha1.RuntimeTokenHeader, token)
	events, err := processpbconnect.NewProcessClient(client, url).Start(ctx, start)
	if err != nil {
		return fmt.Errorf("running a command in sandbox %s/%s: %w", s.namespace, sandbox.Name, err)
	}
	defer func() { _ = events.Close() }() // it was read to its end, or is given up
	err = follow(streams, events, r.command[0])
	if ctx.Err() != nil {
		return fmt.Errorf("%w while a command ran in sandbox %s/%s", interrupted, s.namespace, sandbox.Name)
	}
	return err
}

// follow writes the output of a command until it ends. Its exit code is that of the error.
func follow(streams genericiooptions.IOStreams, events *connect.ServerStreamForClient[processpb.StartResponse], name string) error {
	var end *processpb.ProcessEvent_EndEvent
	for events.Receive() { // to the end of the stream, which follows that of the command
		event := events.Msg().GetEvent()
		output := event.GetData()
		if _, err := streams.Out.Write(output.GetStdout()); err != nil {
			return err
		}
		if _, err := streams.ErrOut.Write(output.GetStderr()); err != nil {
			return err
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
	case !end.GetExited():
		return fmt.Errorf("%s ended: %s", name, end.GetStatus())
	case end.GetExitCode() != 0:
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", end.GetExitCode()), Code: int(end.GetExitCode())}
	}
	return nil
}

// runtimeToken returns the access token of the agent-runtime of a sandbox.
func (s *session) runtimeToken(ctx context.Context, sandbox *v1alpha1.Sandbox) (string, error) {
	claim := sandbox.Labels[v1alpha1.LabelClaimName]
	if claim == "" {
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
