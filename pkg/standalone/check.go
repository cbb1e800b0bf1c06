// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/cli"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/storecheck"
)

// etcdTimeout is how long an etcd may take to connect.
const etcdTimeout = 20 * time.Second

// storeCheck is what the command line says about a check of a store.
type storeCheck struct {
	out              cli.FindingsPrinter
	servers          []string
	tls              transport.TLSInfo
	prefix           string
	encryptionConfig string
}

// newCheckCommand returns the command check of the plugin, which can check a store too. The
// plugin itself knows no etcd.
func newCheckCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &storeCheck{prefix: options.EtcdPrefix}
	command := cli.NewCheckCommand(streams, &o.out)
	flags := pflag.NewFlagSet("store", pflag.ContinueOnError)
	flags.StringVar(&o.tls.TrustedCAFile, "etcd-cafile", "", "With --etcd-servers, file with the CAs of etcd.")
	flags.StringVar(&o.tls.CertFile, "etcd-certfile", "", "With --etcd-servers, file with the certificate that etcd knows the client by.")
	flags.StringVar(&o.tls.KeyFile, "etcd-keyfile", "", "With --etcd-servers, file with the key of that certificate.")
	flags.StringVar(&o.prefix, "etcd-prefix", o.prefix, "With --etcd-servers, what the keys of the store begin with.")
	flags.StringVar(&o.encryptionConfig, "encryption-provider-config", "", "With --etcd-servers, file with the API server's configuration of encryption at rest.")
	command.Flags().StringSliceVar(&o.servers, "etcd-servers", nil, "Check the store in this etcd (scheme://ip:port, comma separated), and not a cluster.")
	command.Flags().AddFlagSet(flags)
	command.Short = "Check the install of the cluster, or a store"
	command.Long += "\n\nWith --etcd-servers the store in that etcd is read, without any cluster or API server, to check that\n" +
		"everything can be decoded, and that the claims and the sandboxes agree. It ends with 1 if there\n" +
		"is a breach, and with 2 if not all can be read."
	command.Example += "\n\n  # The store of an etcd that holds a backup\n" +
		"  %[1]s check --etcd-servers=http://127.0.0.1:2379"
	cluster := command.RunE
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if len(o.servers) > 0 {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		}
		var err error
		flags.VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				err = fmt.Errorf("--%s is for a store: give --etcd-servers too", flag.Name)
			}
		})
		if err != nil {
			return err
		}
		return cluster(cmd, args)
	}
	return command
}

func (o *storeCheck) run(ctx context.Context, out io.Writer) error {
	if err := o.out.Validate(); err != nil {
		return err
	}
	report, err := o.check(ctx)
	if err != nil {
		return cli.NotLooked(err)
	}
	summary := fmt.Sprintf("%d keys below %s at revision %d: %d claims, %d sandboxes, %d sets, %d templates; %d errors, %d warnings",
		report.Keys, report.Prefix, report.Revision,
		report.Objects["sandboxclaims"], report.Objects["sandboxes"], report.Objects["sandboxsets"], report.Objects["sandboxtemplates"],
		report.Errors(), findings.Count(report.Findings, findings.Warning))
	if err := o.out.Print(out, report.Findings, report, summary); err != nil {
		return err
	}
	if err := cli.FoundErrors(report.Errors()); err != nil || report.Unread() == 0 {
		return err
	}
	return cli.NotLooked(errors.New("not all of the store could be read, so it is not known to be well"))
}

func (o *storeCheck) check(ctx context.Context) (report *storecheck.Report, err error) {
	what := storecheck.Options{Prefix: o.prefix, Now: clock.RealClock{}.Now()}
	if o.encryptionConfig != "" {
		if what.Transformers, err = storecheck.LoadTransformers(ctx, o.encryptionConfig); err != nil {
			return nil, err
		}
	}
	config := clientv3.Config{Endpoints: o.servers, DialTimeout: etcdTimeout, Logger: zap.NewNop(), Context: ctx}
	if !o.tls.Empty() || o.tls.TrustedCAFile != "" {
		if config.TLS, err = o.tls.ClientConfig(); err != nil {
			return nil, fmt.Errorf("TLS of etcd: %w", err)
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %v: %w", o.servers, err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	probe, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	if _, err := client.Get(probe, o.prefix, clientv3.WithCountOnly()); err != nil {
		return nil, fmt.Errorf("etcd at %v does not answer: %w", o.servers, err)
	}
	return storecheck.Run(ctx, client, what)
}
