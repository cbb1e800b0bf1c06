// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxprocess

import "syscall"

// endsWithParent has a process end when this program does, however that ends.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
