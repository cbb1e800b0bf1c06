// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "os/exec"

// startChild starts a process. If this one is killed, the child stays.
func startChild(cmd *exec.Cmd) error { return cmd.Start() }
