// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"os"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// programs is the folder of the programs under test.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandlot-robustness-")
	if err != nil {
		return program.Complain(err)
	}
	defer os.RemoveAll(dir)
	programs = dir
	if err := program.Build(dir, "sandlot-apiserver", "sandlot-controller-manager"); err != nil {
		return program.Complain(err)
	}
	return m.Run()
}
