// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-sandlot is the plugin that kubectl runs as "kubectl sandlot".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sandlot-io/sandlot/pkg/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := cli.NewPluginCommand(streams, os.Args).ExecuteContext(ctx)
	os.Exit(cli.Report(os.Stderr, err))
}
