// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause is what the pause image runs: it keeps the namespaces of a pod until a
// signal ends it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}
