// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandlot runs everything on one machine, without a cluster, and has the commands
// of kubectl sandlot.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sandlot-io/sandlot/pkg/cli"
	"github.com/sandlot-io/sandlot/pkg/standalone"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := standalone.NewCommand(streams).ExecuteContext(ctx)
	os.Exit(cli.Report(os.Stderr, err))
}
