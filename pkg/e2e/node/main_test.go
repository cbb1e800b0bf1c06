// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// nodeName is the name of the node of the tests.
const nodeName = "real"

// plane has the node of the tests, each of which has a namespace of its own. Both are nil if there
// can be none, for the reason in missing. A test that disturbs the node is not parallel.
var (
	plane   *controlplane.ControlPlane
	node    *realnode.Node
	missing error
)

func TestMain(m *testing.M) {
	realnode.MaybeRunNode()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if missing = realnode.CheckSupported(realnode.Options{}); missing != nil {
		if realnode.Required() {
			return program.Complain(missing)
		}
		return m.Run() // the tests are skipped
	}
	klog.SetOutput(os.Stderr)
	dir, end, err := program.MakeFolder("sandlot-node-")
	if err != nil {
		return program.Complain(err)
	}
	defer func() { end(code) }()
	stop, err := start(context.Background(), dir)
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, stop()); err != nil {
		return program.Complain(err)
	}
	return code
}

// start starts a cluster of one real node. What it returns stops what was started.
func start(ctx context.Context, dir string) (stop func() error, err error) {
	var stops []func() error // in this order: nothing is sent to pods when their node ends
	stop = func() error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop())
		}
		return errors.Join(errs...)
	}
	programs := filepath.Join(dir, "bin")
	if err := program.Build(programs, "sandlot-apiserver", "sandlot-controller-manager", "sandlot-runtime", "kubectl-sandlot"); err != nil {
		return stop, err
	}
	// kubectl finds its plugin there.
	if err := os.Setenv("PATH", programs+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return stop, err
	}
	images, err := realnode.MakeImages(ctx, dir, programs)
	if err != nil {
		return stop, err
	}
	if plane, err = controlplane.Start(ctx, controlplane.Options{Dir: dir, Nodes: -1, ForTests: true}); err != nil {
		return stop, err
	}
	stops = append(stops, plane.Stop)
	if node, err = realnode.Start(ctx, plane, realnode.Options{Name: nodeName, Images: []string{images}}); err != nil {
		return stop, err
	}
	stops = append(stops, node.Stop)
	_, err = plane.Install(ctx, controlplane.SandlotOptions{BinDir: programs})
	return stop, err
}
