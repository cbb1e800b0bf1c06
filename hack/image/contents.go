// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandlot-io/sandlot/hack/image/compile"
)

// content is what an image holds.
type content struct {
	name, description string
	// module is the folder of the module of the programs, below that of the main module.
	module string
	// programs are what is in the image, the first one of them what it runs.
	programs []compile.Program
}

// contents are the images that are made. Each holds one program, because a node pulls, and
// an intruder finds, no more than what is run there; they share the layer below them. Only
// the image of etcd has three, as that of the etcd project: what defragments a member, or
// looks into its data, is run in its pod, by the version that the member has.
var contents = []content{
	own("sandlot", "Sandboxes on one machine, without a cluster: API server, etcd and controllers in one process"),
	own("sandlot-apiserver", "The API of sandboxes and claims of them, as an aggregated API server of Kubernetes"),
	own("sandlot-controller-manager", "The background work for sandboxes and claims of them"),
	{
		name: "sandlot-etcd", description: "etcd, with etcdctl and etcdutl, to keep sandboxes and claims of them in",
		module: compile.EtcdModule, programs: compile.Etcd,
	},
	own("sandlot-gateway", "The API of E2B over sandboxes of Kubernetes, and a way to their ports"),
	own("sandlot-runtime", "An agent-runtime, to be copied into the containers of sandboxes"),
}

// own is an image of one of our own programs.
func own(name, description string) content {
	return content{name: name, description: description, programs: []compile.Program{compile.Own(name)}}
}

// compileAll compiles what is in the images for all platforms, into a folder for each
// platform below dir. What is of one module is compiled at once.
func compileAll(ctx context.Context, o options, dir string) error {
	modules := map[string][]compile.Program{}
	for _, one := range contents {
		modules[one.module] = append(modules[one.module], one.programs...)
	}
	for _, platform := range o.platforms {
		for module, programs := range modules {
			err := compile.Programs(ctx, compile.Options{
				Root: o.root, Module: module, Version: o.version,
				Platform: platform.OS + "/" + platform.Architecture, Out: programDir(dir, platform),
			}, programs...)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func programDir(dir string, platform v1.Platform) string {
	return filepath.Join(dir, platform.OS+"-"+platform.Architecture)
}
