// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/check"
	"github.com/sandlot-io/sandlot/pkg/findings"
)

// checkOptions are what the command line says about a check.
type checkOptions struct {
	*connection
	out *FindingsPrinter
}

// checkReport is what a check of a cluster found, for programs.
type checkReport struct {
	Findings []findings.Finding `json:"findings"`
}

// NewCheckCommand returns the command check, with the flags that say which server is asked,
// for a program that adds something else to check. What it finds is printed by out.
func NewCheckCommand(streams genericiooptions.IOStreams, out *FindingsPrinter) *cobra.Command {
	c := newConnection(streams)
	command := newCheckCommand(c, out)
	c.addFlags(command, command.Flags())
	return command
}

func newCheckCommand(c *connection, out *FindingsPrinter) *cobra.Command {
	o := &checkOptions{connection: c, out: out}
	command := &cobra.Command{
		Use:   "check",
		Short: "Check the install of the cluster",
		Long: "Check what runs in the install of the cluster, and that certificates, APIServices, etcd,\n" +
			"quotas, policies and rights are as they should be. Each finding says what to do. Nothing is\n" +
			"written. What you may not read is NotLookedAt.\n\n" +
			"It ends with 1 if there are errors, and with 2 if it cannot be found out whether there is an install.",
		Example: "  # As an administrator\n" +
			"  %[1]s check\n\n" +
			"  # What is not as it should be, for a program\n" +
			"  %[1]s check -o json | jq '.findings[] | select(.level != \"OK\")'",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.nameProgram(command)
	out.addFlag(command)
	return command
}

func (o *checkOptions) run(ctx context.Context) error {
	if err := o.out.Validate(); err != nil {
		return err
	}
	config, err := o.flags.ToRESTConfig()
	if err != nil {
		return NotLooked(err)
	}
	found, err := check.Run(ctx, config, clock.RealClock{})
	if err != nil {
		return NotLooked(err)
	}
	errs := findings.Count(found, findings.Error)
	summary := fmt.Sprintf("%d errors, %d warnings, %d not looked at", errs, findings.Count(found, findings.Warning), findings.Count(found, findings.NotLookedAt))
	if err := o.out.Print(o.Out, found, checkReport{found}, summary); err != nil {
		return err
	}
	return FoundErrors(errs)
}
