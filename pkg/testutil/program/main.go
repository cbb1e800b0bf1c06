// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"os"
)

// keepVariable keeps data and logs after a run that did not fail, too.
const keepVariable = "SANDLOT_E2E_KEEP"

// Complain prints why the tests of a package cannot run, and returns the exit code for that.
func Complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// MakeFolder makes a folder for the data and logs of the tests of a package. end is to be called with their exit
// code: it removes the folder, unless they failed or the environment has SANDLOT_E2E_KEEP.
func MakeFolder(pattern string) (dir string, end func(code int), err error) {
	dir, err = os.MkdirTemp("", pattern)
	return dir, func(code int) {
		if code == 0 && os.Getenv(keepVariable) == "" {
			_ = os.RemoveAll(dir) // a folder of the system's for temporary files
			return
		}
		fmt.Fprintln(os.Stderr, "data and logs are in", dir)
	}, err
}
