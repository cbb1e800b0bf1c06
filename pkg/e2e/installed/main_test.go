// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

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

// plane has the node of the tests, which disturb each other: none is parallel. Both are nil if there
// can be none, for the reason in missing.
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
	if missing = realnode.CheckSupported(realnode.Options{NetworkPolicies: true}); missing != nil {
		if realnode.Required() && realnode.CheckSupported(realnode.Options{}) != nil {
			return program.Complain(missing)
		}
		return m.Run() // the tests are skipped, also where a kernel has real nodes but no NFQUEUE
	}
	klog.SetOutput(os.Stderr)
	dir, end, err := program.MakeFolder("sandlot-installed-")
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

// start starts a cluster of one real node, with Sandlot as pods. What it returns stops what was
// started.
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
	if err := program.Build(programs, "sandlot-runtime"); err != nil {
		return stop, err
	}
	images, err := realnode.MakeImages(ctx, dir, programs)
	if err != nil {
		return stop, err
	}
	ours, err := makeImages(ctx, dir)
	if err != nil {
		return stop, err
	}
	// Without kube-proxy, kube-apiserver has no other way to the pods of a Service.
	args := []string{"--enable-aggregator-routing=true"}
	if plane, err = controlplane.Start(ctx, controlplane.Options{Dir: dir, Nodes: -1, ForTests: true, APIServerArgs: args}); err != nil {
		return stop, err
	}
	stops = append(stops, plane.Stop)
	options := realnode.Options{Name: nodeName, Images: []string{images, ours.archive}, NetworkPolicies: true}
	if node, err = realnode.Start(ctx, plane, options); err != nil {
		return stop, err
	}
	stops = append(stops, node.Stop)
	etcd, err := startEtcd(ctx, dir)
	if err != nil {
		return stop, err
	}
	stops = append(stops, etcd.stop)
	return stop, install(ctx, dir, ours, etcd)
}
