// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// plane and sandlot are shared by the tests, each of which has namespaces of its
// own. A test that disturbs them (stops a process, say) is not parallel, and
// leaves them as it found them.
var (
	plane   *controlplane.ControlPlane
	sandlot *controlplane.Sandlot
	// programs is the folder of our programs.
	programs string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// atOnce is how many parallel tests run at a time unless -parallel says another number: more
// than there are processors, because most of the time they wait for the cluster.
const atOnce = "3"

func run(m *testing.M) (code int) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			return program.Complain(err)
		}
	}
	klog.SetOutput(os.Stderr)
	dir, end, err := program.MakeFolder("sandlot-cluster-")
	if err != nil {
		return program.Complain(err)
	}
	defer func() { end(code) }()
	programs = filepath.Join(dir, "bin")
	if err := program.Build(programs, "sandlot", "sandlot-apiserver", "sandlot-controller-manager"); err != nil {
		return program.Complain(err)
	}
	ctx := context.Background()
	if plane, err = controlplane.Start(ctx, controlplane.Options{Dir: dir, ForTests: true}); err != nil {
		return program.Complain(err)
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			code = program.Complain(err)
		}
	}()
	if sandlot, err = plane.Install(ctx, controlplane.SandlotOptions{
		BinDir: programs,
		// Tests rotate the CA and the key of the store, and have no ten minutes for the
		// overlap. API servers look for a new key once a minute.
		ControllerArgs: []string{"--certificates-overlap=10s", "--encryption-key-overlap=70s"},
	}); err != nil {
		return program.Complain(err)
	}
	return m.Run()
}
