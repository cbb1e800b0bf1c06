// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sandboxprocess

import "syscall"

// endsWithParent does nothing: sandlot-runtime is for Linux only.
func endsWithParent() *syscall.SysProcAttr { return nil }
