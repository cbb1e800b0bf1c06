// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sandboxprocess

import "syscall"

// attributes are nil: sandlot-runtime is for Linux only.
func attributes() *syscall.SysProcAttr { return nil }
