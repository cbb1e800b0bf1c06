// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the program sandlot-apiserver: flags, logs, and a run of the
// API server, with its etcd if that is embedded.
package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/version"
)

// NewCommand returns the command sandlot-apiserver. Its context ends the run.
func NewCommand() *cobra.Command {
	o := options.NewOptions()
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   "sandlot-apiserver",
		Short: "Serve sandboxes and claims of them as a Kubernetes API",
		Long: "Serve the API group agents.kruise.io, as an aggregated API server of a cluster\n" +
			"(--kubeconfig, or running in one), or alone (--client-ca-file).",
		Args:          cobra.NoArgs,
		Version:       version.Get(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
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

// Run serves until ctx is cancelled, and returns when everything is stopped. If
// etcd is embedded, it starts first and stops last, and the server does not
// outlive it.
func Run(ctx context.Context, o *options.Options) (err error) {
	group, ctx := errgroup.WithContext(ctx)
	if o.EmbeddedEtcdDir != "" {
		etcd, err := embeddedetcd.Start(ctx, o.EmbeddedEtcdDir, embeddedetcd.WithQuota(o.EmbeddedEtcdQuota))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, etcd.Close()) }()
		o.Etcd.StorageConfig.Transport.ServerList = etcd.Endpoints()
		group.Go(func() error {
			select {
			case err := <-etcd.Failed():
				return fmt.Errorf("embedded etcd failed: %w", err)
			case <-ctx.Done():
				return nil
			}
		})
	}
	group.Go(func() error {
		config, err := o.Config()
		if err != nil {
			return err
		}
		server, err := config.Complete().New()
		if err != nil {
			return err
		}
		return server.Run(ctx)
	})
	return group.Wait()
}
