// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
)

// releaseOptions are what the command line says about a release.
type releaseOptions struct {
	*connection
	printed *genericclioptions.PrintFlags
	claim   string
	names   []string
	all     bool
}

func newReleaseCommand(c *connection) *cobra.Command {
	o := &releaseOptions{connection: c, printed: genericclioptions.NewPrintFlags("released").WithTypeSetter(scheme.Scheme)}
	command := &cobra.Command{
		Use:   "release CLAIM (SANDBOX... | --all)",
		Short: "Give sandboxes of a claim back",
		Long: "Delete sandboxes of a claim that has ended. It takes no right on sandboxes but that to\n" +
			"release claims, and reaches only those that are bound to the claim. The claim stays as it\n" +
			"is and gets no others: delete it afterwards if it is not wanted any more. --all leaves\n" +
			"failed sandboxes that the claim keeps for debugging, which have to be named.",
		Example: "  # All sandboxes of a claim\n" +
			"  %[1]s release run-1 --all\n\n" +
			"  # One of them\n" +
			"  %[1]s release run-1 python-4k2p7d9x0aqz",
		ValidArgsFunction: c.completeReleased,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("release takes the name of a claim")
			}
			if o.claim, o.names = args[0], args[1:]; o.all == (len(o.names) > 0) {
				return errors.New("name the sandboxes to release, or say --all")
			}
			return o.run(cmd.Context())
		},
	}
	c.nameProgram(command)
	command.Flags().BoolVar(&o.all, "all", false, "Release all sandboxes that the claim has.")
	o.printed.AddFlags(command)
	return command
}

func (o *releaseOptions) run(ctx context.Context) error {
	printer, err := o.printed.ToPrinter()
	if err != nil {
		return err
	}
	s, err := o.open()
	if err != nil {
		return err
	}
	answer, err := o.release(ctx, s)
	if answer == nil {
		return err
	}
	if len(answer.Status.Released) == 0 && err == nil {
		o.say("sandboxclaim %s/%s has none of these sandboxes any more", s.namespace, o.claim)
	}
	if format := *o.printed.OutputFormat; format != "" && format != "name" {
		return errors.Join(err, printer.PrintObj(answer, o.Out))
	}
	for _, name := range answer.Status.Released {
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		err = errors.Join(err, printer.PrintObj(sandbox, o.Out))
	}
	return err
}

// release releases until nothing remains. What one answer had no time for is for the next.
// On an error the answer has what was released before it, and is nil if that is nothing.
func (o *releaseOptions) release(ctx context.Context, s *session) (*v1alpha1.SandboxClaimRelease, error) {
	claims := s.agents.SandboxClaims(s.namespace)
	claim, err := claims.Get(ctx, o.claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	request := &v1alpha1.SandboxClaimRelease{}
	request.Spec.SandboxNames, request.Spec.ClaimUID = o.names, claim.UID
	var all *v1alpha1.SandboxClaimRelease
	for {
		answer, err := claims.Release(ctx, o.claim, request, metav1.CreateOptions{})
		if ctx.Err() != nil {
			return all, fmt.Errorf("%w: sandboxes of sandboxclaim %s/%s may be left, release them again", interrupted, s.namespace, o.claim)
		}
		if err != nil {
			return all, err
		}
		done := len(answer.Status.Released)
		if all != nil {
			answer.Status.Released = append(all.Status.Released, answer.Status.Released...)
		}
		all = answer
		switch remaining := answer.Status.Remaining; {
		case remaining == 0:
			return all, nil
		case done == 0:
			return all, fmt.Errorf("%d sandboxes of sandboxclaim %s/%s are left: release them again", remaining, s.namespace, o.claim)
		}
	}
}
