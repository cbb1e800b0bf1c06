// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// options are the same for all commands.
type options struct {
	dir   string
	clean bool
	plane controlplane.Options
	// sandlot is what runs against the control plane.
	sandlot controlplane.SandlotOptions
}

func newOptions() *options {
	return &options{dir: "_output/cluster", sandlot: controlplane.SandlotOptions{Replicas: 2, Overlay: "default"}}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dir, "dir", o.dir, "Folder of all data, certificates and logs. Two clusters need two folders.")
	fs.BoolVar(&o.clean, "clean", o.clean, "Remove the data: before the start, or after the stop.")
	fs.IntVar(&o.plane.APIServerPort, "port", 0, "Port of kube-apiserver. 0 takes that of the last time, or a free one.")
	fs.IntVar(&o.plane.EtcdPort, "etcd-port", 0, "Port of the cluster's etcd. 0 takes that of the last time, or a free one.")
	fs.IntVar(&o.plane.Nodes, "nodes", 0, "Simulated nodes, each with room for 10,000 pods. 0 means 4.")
	fs.StringVar(&o.sandlot.Overlay, "overlay", o.sandlot.Overlay, "Overlay of artifacts/deploy to run: default, or single.")
	fs.IntVar(&o.sandlot.Replicas, "replicas", 0, "Replicas of sandlot-apiserver. 0 means as the overlay needs.")
}

// args are the flags that say the same.
func (o *options) args() []string {
	return []string{
		"--dir=" + o.dir,
		fmt.Sprintf("--port=%d", o.plane.APIServerPort),
		fmt.Sprintf("--etcd-port=%d", o.plane.EtcdPort),
		fmt.Sprintf("--nodes=%d", o.plane.Nodes),
		"--overlay=" + o.sandlot.Overlay,
		fmt.Sprintf("--replicas=%d", o.sandlot.Replicas),
	}
}
