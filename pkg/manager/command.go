// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sandlot-io/sandlot/pkg/version"
)

// NewCommand returns the command sandlot-controller-manager. Its context ends the
// run.
func NewCommand() *cobra.Command {
	o := NewOptions()
	logging := logsapi.NewLoggingConfiguration()
	kubeconfig := ""
	cmd := &cobra.Command{
		Use:   "sandlot-controller-manager",
		Short: "Do the background work for sandboxes and claims of them",
		Long: "Keep the pools of SandboxSets filled, and delete expired claims and sandboxes, as\n" +
			"a client of a Kubernetes API (--kubeconfig, or running in a cluster).",
		Args:          cobra.NoArgs,
		Version:       version.Get(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// First what touches nothing of the process, as logging does.
			cfg, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("logging: %w", err)
			}
			defer logs.FlushLogs()
			return run(cmd.Context(), cfg, *o)
		},
	}
	cmd.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc)
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig,
		"The kubeconfig of the API to work on. Not needed in a cluster.")
	o.AddFlags(cmd.Flags())
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return cfg, nil
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("no --kubeconfig, and not in a cluster: %w", err)
	}
	return cfg, nil
}
