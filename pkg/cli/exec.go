// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	kubectlexec "k8s.io/kubectl/pkg/cmd/exec"
	"k8s.io/kubectl/pkg/scheme"
	"k8s.io/kubectl/pkg/util/interrupt"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// remote is a command to run in a sandbox. Its words go to the container as they are: no
// shell reads them.
type remote struct {
	command           []string
	container         string
	stdin, tty, quiet bool
}

func (r *remote) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&r.container, "container", "c", "", "Container to run the command in. Empty means the pod's default, or its first one.")
	fs.BoolVarP(&r.stdin, "stdin", "i", false, "Pass the input to the command.")
	fs.BoolVarP(&r.tty, "tty", "t", false, "The input is a terminal.")
	fs.BoolVarP(&r.quiet, "quiet", "q", false, "Print the output of the command only.")
}

func newExecCommand(c *connection) *cobra.Command {
	r := remote{}
	command := &cobra.Command{
		Use:   "exec CLAIM|SANDBOX [-- COMMAND [ARGS...]]",
		Short: "Run a command in a sandbox, or a shell",
		Long: "Run a command in a sandbox: in the one of a claim (sbc/NAME), or in the one of that name\n" +
			"(sbx/NAME). A name alone is either, and is refused where it could be both: others may give\n" +
			"their claims the name of your sandbox, so scripts say which. Without a command it is a\n" +
			"shell (sh) on this terminal. It takes the right to exec into pods: the pod of a sandbox\n" +
			"has its name.",
		Example: "  # A shell in the sandbox of a claim\n" +
			"  %[1]s exec run-1\n\n" +
			"  # A command in a sandbox\n" +
			"  %[1]s exec sbx/python-4k2p7d9x0aqz -- python --version",
		ValidArgsFunction: c.first(c.completeHoldings),
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			if dash != 1 {
				return fmt.Errorf("exec takes one claim or sandbox, and got %d arguments; a command follows --", dash)
			}
			r.command = args[1:]
			if len(r.command) == 0 {
				r.command, r.stdin, r.tty = []string{"sh"}, true, r.tty || printers.IsTerminal(c.In)
			}
			s, err := c.open()
			if err != nil {
				return err
			}
			sandbox, err := s.target(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return s.run(cmd.Context(), c.IOStreams, sandbox, r)
		},
	}
	c.nameProgram(command)
	r.addFlags(command.Flags())
	return command
}

// target is the name of the sandbox that an argument means.
func (s *session) target(ctx context.Context, arg string) (string, error) {
	kind, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		kind, name = "", arg
	}
	// kubectl prints a kind with its group.
	if short, group, _ := strings.Cut(kind, "."); slices.Contains([]string{v1alpha1.GroupName, v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup}, group) {
		kind = short
	}
	switch kind {
	case "sbx", "sandbox", "sandboxes", "po", "pod", "pods":
		return name, nil
	case "", "sbc", "sandboxclaim", "sandboxclaims":
	default:
		return "", fmt.Errorf("%q is neither a sandboxclaim (sbc/NAME) nor a sandbox (sbx/NAME)", arg)
	}
	claim, err := s.agents.SandboxClaims(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if kind == "" && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		return s.unclaimedTarget(ctx, name)
	}
	if err != nil {
		return "", err
	}
	sandbox, err := onlySandbox(claim)
	if kind != "" || err != nil || sandbox == name {
		return sandbox, err
	}
	if err := s.refuseTwo(ctx, name); err != nil {
		return "", err
	}
	return sandbox, nil
}

// unclaimedTarget is the sandbox that a name means which is not that of a claim. A pod of
// the name alone is no sandbox.
func (s *session) unclaimedTarget(ctx context.Context, name string) (string, error) {
	_, err := s.agents.Sandboxes(s.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", s.absent(name)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("cannot read sandboxclaim %q in namespace %q, and it may be a sandbox: write sbx/%s if it is: %w",
			name, s.namespace, name, err)
	case err != nil:
		return "", err
	}
	return name, nil
}

// refuseTwo returns an error if a name, which a claim has, is that of a sandbox too. Who may
// not read sandboxes may read pods, as exec does: the pod of a sandbox has its name.
func (s *session) refuseTwo(ctx context.Context, name string) error {
	_, err := s.agents.Sandboxes(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		_, err = s.kube.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case err == nil:
		return fmt.Errorf("%q is a sandboxclaim and a sandbox in namespace %q: write sbc/%s or sbx/%s", name, s.namespace, name, name)
	case apierrors.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("whether %q is a sandbox too is not known: write sbc/%s or sbx/%s: %w", name, name, name, err)
}

// absent is the error for a name that means nothing.
func (s *session) absent(name string) error {
	return fmt.Errorf("there is neither a sandboxclaim nor a sandbox %q in namespace %q", name, s.namespace)
}

// onlySandbox is the sandbox of a claim that has one.
func onlySandbox(claim *v1alpha1.SandboxClaim) (string, error) {
	const shown = 5
	sandboxes := claim.Status.Sandboxes
	switch len(sandboxes) {
	case 0:
		return "", fmt.Errorf("sandboxclaim %s/%s has no sandbox: %s", claim.Namespace, claim.Name, words(claim))
	case 1:
		return sandboxes[0].Name, nil
	}
	names := make([]string, min(len(sandboxes), shown))
	for i := range names {
		names[i] = sandboxes[i].Name
	}
	return "", fmt.Errorf("sandboxclaim %s/%s has %d sandboxes, so name the one that you mean: %s",
		claim.Namespace, claim.Name, len(sandboxes), strings.Join(names, " "))
}

// run runs a command in a sandbox as kubectl exec does, until it ends or ctx does.
func (s *session) run(ctx context.Context, streams genericiooptions.IOStreams, sandbox string, r remote) error {
	config := rest.CopyConfig(s.config)
	config.APIPath, config.GroupVersion = "/api", &scheme.Scheme.PrioritizedVersionsForGroup("")[0]
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	options := &kubectlexec.ExecOptions{
		StreamOptions: kubectlexec.StreamOptions{
			Namespace: s.namespace, PodName: sandbox, ContainerName: r.container,
			Stdin: r.stdin, TTY: r.tty, Quiet: r.quiet, IOStreams: streams,
			// A signal ends ctx. It is not to end the process before there was a look at
			// what it leaves.
			InterruptParent: interrupt.New(func(os.Signal) {}),
		},
		Command: r.command, Executor: untilDone{ctx: ctx}, PodClient: s.kube.CoreV1(), Config: config,
	}
	if err := options.Validate(); err != nil {
		return err
	}
	err := options.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w while a command ran in sandbox %s/%s", interrupted, s.namespace, sandbox)
	case apierrors.IsNotFound(err):
		return s.runWithoutPod(ctx, streams, sandbox, r, err)
	}
	return err
}

// runWithoutPod runs a command in a sandbox whose agent-runtime is a process, or says why the sandbox has no pod.
func (s *session) runWithoutPod(ctx context.Context, streams genericiooptions.IOStreams, name string, r remote, missing error) error {
	sandbox, err := s.agents.Sandboxes(s.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return s.absent(name)
	case err != nil: // who may exec need not be one who may read sandboxes
		return missing
	case apierrors.HasStatusCause(missing, metav1.CauseTypeUnexpectedServerResponse):
		if sandbox.Status.NodeName == processNode {
			return s.runByRuntime(ctx, streams, sandbox, r)
		}
		return fmt.Errorf("sandbox %s/%s is simulated: this server has no pods that a command could run in", s.namespace, name)
	}
	return fmt.Errorf("sandbox %s/%s is %s and has no pod now: %w", s.namespace, name, orNone(string(sandbox.Status.Phase)), missing)
}

// untilDone executes commands until a context ends: the caller of it knows none.
type untilDone struct {
	*kubectlexec.DefaultRemoteExecutor
	ctx context.Context
}

var _ kubectlexec.RemoteExecutor = untilDone{}

// Execute implements RemoteExecutor.
func (e untilDone) Execute(url *url.URL, config *rest.Config, stdin io.Reader, stdout, stderr io.Writer, tty bool,
	sizes remotecommand.TerminalSizeQueue) error {
	return e.ExecuteWithContext(e.ctx, url, config, stdin, stdout, stderr, tty, sizes)
}
