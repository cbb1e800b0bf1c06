// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sandlot-io/sandlot/pkg/version"
)

const (
	// completer is the name by which kubectl looks for the program that completes the
	// arguments of its plugin sandlot.
	completer = "kubectl_complete-sandlot"
	// completeCommand is the command of cobra's that completes arguments.
	completeCommand = cobra.ShellCompRequestCmd
)

// NewPluginCommand returns the plugin that kubectl runs as "kubectl sandlot". args are
// those of the process, its own name first: under the name kubectl_complete-sandlot it
// completes what follows.
func NewPluginCommand(streams genericiooptions.IOStreams, args []string) *cobra.Command {
	c := newConnection(streams)
	root := &cobra.Command{
		Use:               "kubectl-sandlot",
		Short:             "Claim sandboxes, see who holds them, use them and give them back",
		Version:           version.Get(),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sandlot"},
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	c.addFlags(root, root.PersistentFlags())
	root.AddCommand(c.commands()...)
	root.AddCommand(newCheckCommand(c, &FindingsPrinter{}))
	if len(args) > 0 {
		rest := args[1:]
		if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == completer {
			rest = append([]string{completeCommand}, rest...)
		}
		root.SetArgs(rest)
	}
	return root
}

// Commands returns the commands of the plugin for a program that has others too, except for
// that of NewCheckCommand. Each has the flags that say which server is asked.
func Commands(streams genericiooptions.IOStreams) []*cobra.Command {
	c := newConnection(streams)
	commands := c.commands()
	for _, command := range commands {
		fs := command.Flags()
		if command.HasSubCommands() {
			fs = command.PersistentFlags()
		}
		c.addFlags(command, fs)
	}
	return commands
}

func newConnection(streams genericiooptions.IOStreams) *connection {
	c := &connection{flags: genericclioptions.NewConfigFlags(true), IOStreams: streams}
	c.flags.WrapConfigFn = c.configure
	return c
}

func (c *connection) commands() []*cobra.Command {
	return []*cobra.Command{newClaimCommand(c), newListCommand(c), newExecCommand(c), newReleaseCommand(c), newTopCommand(c), newE2BKeyCommand(c)}
}

// nameProgram puts what the user calls the program into the examples of a command. It is known
// when the command has its place below a root.
func (c *connection) nameProgram(command *cobra.Command) {
	help := command.HelpFunc()
	command.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Example = strings.ReplaceAll(cmd.Example, "%[1]s", cmd.Root().DisplayName())
		help(cmd, args)
	})
}

// say tells the user something that is no result. What servers say is in it, escaped.
func (c *connection) say(format string, args ...any) {
	_, _ = fmt.Fprintln(c.ErrOut, printable(fmt.Sprintf(format, args...))) // there is no one else to tell
}
