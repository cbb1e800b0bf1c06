// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/backup/app"
	"github.com/sandlot-io/sandlot/pkg/cli"
	"github.com/sandlot-io/sandlot/pkg/memory"
	"github.com/sandlot-io/sandlot/pkg/version"
)

// NewCommand returns the command sandlot, which has the commands of the plugin of kubectl
// too. Its context ends what runs.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:           "sandlot",
		Short:         "Pre-warmed sandboxes, handed out by the API call that asks for them",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddCommand(newUpCommand(), newVersionCommand(), app.NewBackupCommand(), app.NewRestoreCommand())
	root.AddCommand(cli.Commands(streams)...)
	root.AddCommand(newCheckCommand(streams))
	return root
}

func newUpCommand() *cobra.Command {
	o := NewOptions()
	verbosity := 0
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine, with simulated sandboxes",
		Long: "Run the API server, its etcd and the controllers in this process until it is\n" +
			"interrupted. The API, the store and the allocation are the real ones. Sandboxes\n" +
			"are simulated: no pods run. Data is kept from run to run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			setThreshold, err := setupLogs(verbosity)
			if err != nil {
				return err
			}
			defer klog.Flush()
			memory.FollowLimit(cmd.ErrOrStderr())
			if verbosity == 0 {
				// What is cut off by the end complains, and is no news. What goes wrong
				// with the end itself is returned.
				defer context.AfterFunc(cmd.Context(), func() { _ = setThreshold("FATAL") })()
			}
			return Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.Flags().IntVarP(&verbosity, "v", "v", verbosity, "Log verbosity. 0 logs warnings and errors only.")
	return cmd
}

// setupLogs keeps the terminal free for what a user has to know. It returns the
// way to change how bad something must be to be logged.
func setupLogs(verbosity int) (setThreshold func(string) error, err error) {
	threshold := "INFO"
	if verbosity == 0 {
		threshold = "WARNING"
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	setThreshold = func(value string) error { return fs.Set("stderrthreshold", value) }
	err = errors.Join(
		fs.Set("v", strconv.Itoa(verbosity)),
		fs.Set("legacy_stderr_threshold_behavior", "false"), // or the threshold is ignored
		setThreshold(threshold),
	)
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	return setThreshold, nil
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Get())
			return err
		},
	}
}
