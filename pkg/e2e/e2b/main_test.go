// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/e2bsdk"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

var (
	// programs is the folder of the programs under test.
	programs string
	sdks     e2bsdk.SDKs
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	switch sdks, err = e2bsdk.Install(); {
	case errors.Is(err, e2bsdk.ErrNoNPM):
		fmt.Println("NOT TESTED:", err)
		return 0
	case err != nil:
		return program.Complain(err)
	}
	if programs, err = os.MkdirTemp("", "sandlot-e2b-"); err != nil {
		return program.Complain(err)
	}
	defer os.RemoveAll(programs)
	if err := program.Build(programs, "sandlot", "sandlot-runtime"); err != nil {
		return program.Complain(err)
	}
	return m.Run()
}
