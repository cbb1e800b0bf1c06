// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"testing"
)

// Runtime runs the sandlot-runtime of the folder programs at an IPv4 address, and returns when
// it listens there, at its default port. end kills it.
func Runtime(t testing.TB, programs, ip string) (end func(), err error) {
	t.Helper()
	p := Run(t, programs, "sandlot-runtime", "serve", "--address", ip)
	select {
	case <-p.Stdout.Seen("sandlot-runtime listens on " + ip + ":49983"):
		return p.Kill, nil
	case <-p.Exited:
		return nil, fmt.Errorf("%s ended: %s", p.Name, p.Stderr.String())
	}
}
