// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandlot-runtime is an agent-runtime: it serves processes and files of the
// container that it runs in.
package main

import (
	"os"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/app"
)

func main() { os.Exit(app.Run(os.Args[1:], os.Stdout, os.Stderr)) }
