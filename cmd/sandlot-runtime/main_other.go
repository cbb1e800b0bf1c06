// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Command sandlot-runtime is an agent-runtime for containers, which are Linux's.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "sandlot-runtime: it runs on Linux only")
	os.Exit(1)
}
