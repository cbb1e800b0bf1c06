// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sandlot-io/sandlot/pkg/version"
)

// NewCommand returns the command sandlot-gateway. Its context ends the run.
func NewCommand() *cobra.Command {
	o := NewOptions()
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   "sandlot-gateway",
		Short: "Serve the E2B API over sandboxes, and forward traffic to them",
		Long: "Serve the HTTP API of E2B over the sandboxes of a cluster, for its SDKs, and forward\n" +
			"HTTP requests to the ports of sandboxes.",
		Args:          cobra.NoArgs,
		Version:       version.Get(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("logging: %w", err)
			}
			defer logs.FlushLogs()
			if err := o.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.SetGlobalNormalizationFunc(flag.WordSepNormalizeFunc)
	o.AddFlags(cmd.Flags())
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}
