// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/controllers"
	"github.com/sandlot-io/sandlot/pkg/manager"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*manager.Options)
		want   string // part of the error; empty is none
	}{
		"defaults":       {change: func(*manager.Options) {}},
		"zero value":     {change: func(o *manager.Options) { *o = manager.Options{} }},
		"workers":        {change: func(o *manager.Options) { o.SandboxSetWorkers = -1 }, want: "--sandboxset-workers"},
		"concurrency":    {change: func(o *manager.Options) { o.RefillConcurrency = -1 }, want: "--refill-concurrency"},
		"burst":          {change: func(o *manager.Options) { o.KubeAPIBurst = 0 }, want: "--kube-api-burst"},
		"requests":       {change: func(o *manager.Options) { o.KubeAPIQPS = -1 }, want: "--kube-api-qps"},
		"no limit":       {change: func(o *manager.Options) { o.KubeAPIQPS, o.KubeAPIBurst = 0, 0 }},
		"limited":        {change: func(o *manager.Options) { o.KubeAPIQPS, o.KubeAPIBurst = 5, 10 }},
		"delay":          {change: func(o *manager.Options) { o.SimulatedStartDelay = -1 }, want: "--simulated-start-delay"},
		"nodes":          {change: func(o *manager.Options) { o.NodeTimeout = -1 }, want: "--unavailable-node-timeout"},
		"no quiet":       {change: func(o *manager.Options) { o.QuietPeriod = -1 }},
		"claim events":   {change: func(o *manager.Options) { o.ClaimEvents = "Some" }, want: "--claim-events"},
		"no lease place": {change: func(o *manager.Options) { o.LeaderElectionNamespace = "" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := manager.NewOptions()
			test.change(o)
			err := o.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

// The manager does not let controller-runtime check this, because a process can
// run several managers.
func TestControllerNamesAreUnique(t *testing.T) {
	for name, test := range map[string]struct {
		simulate bool
		want     int
	}{
		"in a cluster": {want: 14},
		"alone":        {simulate: true, want: 11},
	} {
		o := controllers.DefaultOptions()
		o.Simulate = test.simulate
		seen := map[string]bool{}
		for _, c := range controllers.New(nil, nil, o) {
			if seen[c.Name()] {
				t.Errorf("%s: two controllers are called %s", name, c.Name())
			}
			seen[c.Name()] = true
		}
		if len(seen) != test.want {
			t.Errorf("%s: %d controllers", name, len(seen))
		}
	}
}

func TestCommand(t *testing.T) {
	cmd := manager.NewCommand()
	for _, name := range []string{"kubeconfig", "leader-elect", "metrics-bind-address", "health-probe-bind-address", "v"} {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("no flag --%s", name)
		}
	}
	cmd.SetArgs([]string{"--kubeconfig", "/nonexistent"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("with a kubeconfig that is not there: %v", err)
	}
}
