// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

var (
	// programs is the folder of the programs under test.
	programs string
	// sdk is the folder with node and the SDKs.
	sdk string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("CI") != "" {
			return complain(fmt.Errorf("the SDKs are tested in CI: %w", err))
		}
		fmt.Println("NOT TESTED: npm is missing")
		return 0
	}
	install := exec.Command(filepath.Join("..", "..", "..", "hack", "e2b-sdk.sh"))
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		return complain(fmt.Errorf("installing the SDKs: %w", err))
	}
	sdk = strings.TrimSpace(string(out))
	if programs, err = os.MkdirTemp("", "sandlot-e2b-"); err != nil {
		return complain(err)
	}
	defer os.RemoveAll(programs)
	if err := program.Build(programs, "sandlot"); err != nil {
		return complain(err)
	}
	return m.Run()
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
