// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster keeps a local control plane with Sandlot running in the
// background, until it is told to stop:
//
//	cluster up   [flags]   start it, or say that it runs
//	cluster down [flags]   stop it; its data is kept
//
// What runs in the background is this program as well ("cluster serve"): the
// other processes are its children, which it starts again when they end, and which
// end with it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli/flag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A local control plane with Sandlot, in the background",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc)
	for _, c := range []struct {
		command *cobra.Command
		run     func(context.Context, options) error
	}{
		{&cobra.Command{Use: "up", Short: "Start it, or say that it runs"}, up},
		{&cobra.Command{Use: "down", Short: "Stop it, and return when everything has ended"}, down},
		{&cobra.Command{Use: "serve", Short: "Be it, in the foreground", Hidden: true}, serve},
	} {
		c.command.Args = cobra.NoArgs
		c.command.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), *o) }
		o.addFlags(c.command.Flags())
		root.AddCommand(c.command)
	}
	return root
}
