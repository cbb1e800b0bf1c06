// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandlot-apiserver serves the API.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sandlot-io/sandlot/pkg/apiserver/app"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

func main() {
	memory.FollowLimit(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := app.NewCommand().ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
