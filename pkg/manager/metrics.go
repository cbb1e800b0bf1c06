// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/version"
)

func init() {
	metrics.Registry.MustRegister(
		lastBackup,
		buildInfo("sandlot_build_info", "1, with the version of Sandlot that runs.", prometheus.Labels{"version": version.Get()}),
		buildInfo("agent_sandbox_build_info", "1, with the build of Sandlot that runs, in the labels of agent-sandbox.", agentBuild()))
}

func buildInfo(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

// agentBuild is this build as agent-sandbox shows its own.
func agentBuild() prometheus.Labels {
	labels := prometheus.Labels{
		"git_version": version.Get(), "git_commit": "unknown", "build_date": "unknown",
		"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				labels["git_commit"] = setting.Value
			case "vcs.time":
				labels["build_date"] = setting.Value
			}
		}
	}
	return labels
}
