// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package program

import "os/exec"

// StartChild starts a process. If this one is killed, the child stays.
func StartChild(cmd *exec.Cmd) error { return cmd.Start() }
