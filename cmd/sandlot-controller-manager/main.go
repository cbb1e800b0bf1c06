// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandlot-controller-manager does the background work.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sandlot-io/sandlot/pkg/manager"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

func main() {
	memory.FollowLimit(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := manager.NewCommand().ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
