// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// claimOptions are what the command line says about a claim.
type claimOptions struct {
	*connection
	out *output
	// program is what the user calls this program.
	program string

	pool         string
	name         string
	replicas     int32
	allOrNothing bool
	timeout      time.Duration
	wait         bool
	exec         bool
	rm           bool
	remote       remote
}

func newClaimCommand(c *connection) *cobra.Command {
	o := &claimOptions{connection: c, replicas: v1alpha1.DefaultClaimReplicas}
	command := &cobra.Command{
		Use:   "claim POOL [-r REPLICAS] [--wait] [--exec -- COMMAND [ARGS...]]",
		Short: "Claim sandboxes of a pool, and run a command in them",
		Long: "Claim sandboxes of a SandboxSet, or of a SandboxTemplate where no set has that name.\n\n" +
			"The answer has the sandboxes, if the pool has them. With --wait it comes when the claim\n" +
			"has ended, and the program fails unless the claim got all its sandboxes and they are\n" +
			"ready. What was claimed stays claimed when the program ends, but with --rm.",
		Example: "  # One sandbox, with its name and address\n" +
			"  %[1]s claim python\n\n" +
			"  # Three, or none of them, and wait for them for five minutes at most\n" +
			"  %[1]s claim python -r 3 --all-or-nothing --wait --timeout 5m\n\n" +
			"  # Run a command in a sandbox, which is gone afterwards\n" +
			"  %[1]s claim python --rm --exec -- python -c 'print(6 * 7)'",
		ValidArgsFunction: c.first(c.completePools),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.program = cmd.Root().DisplayName()
			if err := o.complete(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	c.nameProgram(command)
	flags := command.Flags()
	flags.Int32VarP(&o.replicas, "replicas", "r", o.replicas, "How many sandboxes to claim.")
	flags.StringVar(&o.name, "name", "", "Name of the claim. Empty means one that begins with the name of the pool.")
	flags.BoolVar(&o.allOrNothing, "all-or-nothing", false, "Claim all of the sandboxes or none of them.")
	flags.DurationVar(&o.timeout, "timeout", 0, "Maximum time that the claim waits for sandboxes. 0 means the default of the server, 1m.")
	flags.BoolVar(&o.wait, "wait", false, "Wait until the claim has ended, and fail unless it has all its sandboxes and they are ready.")
	flags.BoolVar(&o.exec, "exec", false, "Wait, and run the command that follows -- in each of the sandboxes, one after the other.")
	flags.BoolVar(&o.rm, "rm", false, "With --exec, delete the claim and its sandboxes when the command has ended.")
	o.remote.addFlags(flags)
	o.out = newOutput(command, c.Out, "claimed")
	return command
}

// complete reads the arguments, of which dash come before --, and judges them.
func (o *claimOptions) complete(args []string, dash int) error {
	if dash >= 0 {
		args, o.remote.command = args[:dash], args[dash:]
	}
	switch {
	case len(args) != 1:
		return fmt.Errorf("claim takes the name of one pool, and got %d arguments", len(args))
	case o.replicas < 1:
		return fmt.Errorf("--replicas %d is not positive", o.replicas)
	case o.timeout < 0:
		return fmt.Errorf("--timeout %s is negative", o.timeout)
	}
	o.pool = args[0]
	return o.completeExec()
}

// completeExec judges what there is to run.
func (o *claimOptions) completeExec() error {
	switch {
	case o.exec && len(o.remote.command) == 0:
		return errors.New("--exec runs the command that follows --: claim POOL --exec -- COMMAND")
	case !o.exec && len(o.remote.command) > 0:
		return errors.New("a command is run with --exec only")
	case o.rm && !o.exec:
		return errors.New("--rm is for --exec: release gives back sandboxes otherwise")
	case o.exec && *o.out.OutputFormat != "":
		return errors.New("--output is not for --exec, whose output is that of the command")
	case o.exec && o.replicas > 1 && o.remote.stdin:
		return errors.New("--stdin is for one sandbox: there is one input")
	}
	return nil
}

// order is the claim that is asked for.
func (o *claimOptions) order(namespace string) *v1alpha1.SandboxClaim {
	order := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.name}}
	if order.Name == "" {
		order.Name = newName(o.pool)
	}
	order.Spec.TemplateName, order.Spec.Replicas = o.pool, &o.replicas
	if o.allOrNothing {
		order.Spec.Allocation = v1alpha1.AllocationAllOrNothing
	}
	if o.timeout > 0 {
		order.Spec.ClaimTimeout = &metav1.Duration{Duration: o.timeout}
	}
	if o.rm {
		// Then the sandboxes go with the claim, regardless of who deletes it: they
		// are not left behind for long even if this program is killed.
		order.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	}
	return order
}

func (o *claimOptions) run(ctx context.Context) (err error) {
	printer, err := o.out.printer()
	if err != nil {
		return err
	}
	s, err := o.open()
	if err != nil {
		return err
	}
	order, key := o.order(s.namespace), rand.Text()
	claim, err := claimAndWait(ctx, s.agents, order, key, o.wait || o.exec, o.teller())
	if o.rm && (claim != nil || ctx.Err() != nil) {
		defer func() { err = errors.Join(err, o.remove(ctx, s.agents, order, claim, key)) }()
	} else if ctx.Err() != nil {
		o.tellLeft(order, claim)
	}
	if claim == nil || ctx.Err() != nil || o.exec && err != nil {
		return err
	}
	if o.exec {
		return o.use(ctx, s, claim)
	}
	return errors.Join(err, o.print(printer, claim))
}

// print writes what was claimed.
func (o *claimOptions) print(printer printers.ResourcePrinter, claim *v1alpha1.SandboxClaim) error {
	if !o.out.table() {
		return printer.PrintObj(claim, o.Out)
	}
	if stateOf(claim) == stateWaiting && !o.wait {
		o.say("sandboxclaim %s/%s waits: %s", claim.Namespace, claim.Name, claim.Status.Message)
	}
	held := holdings{claims: []*v1alpha1.SandboxClaim{claim}}
	return printer.PrintObj(held.table(clock.RealClock{}.Now(), false), o.Out)
}

// use runs the command in the sandboxes of a claim.
func (o *claimOptions) use(ctx context.Context, s *session, claim *v1alpha1.SandboxClaim) error {
	for _, sandbox := range claim.Status.Sandboxes {
		if len(claim.Status.Sandboxes) > 1 && !o.remote.quiet {
			o.say("sandbox %s:", sandbox.Name)
		}
		if err := s.run(ctx, o.IOStreams, sandbox.Name, o.remote); err != nil {
			if ctx.Err() != nil && !o.rm {
				o.tellLeft(claim, claim)
			}
			return err
		}
	}
	if !o.rm && !o.remote.quiet {
		o.tellLeft(claim, claim)
	}
	return nil
}

// teller returns what tells the user how a claim that waits continues.
func (o *claimOptions) teller() func(*v1alpha1.SandboxClaim) {
	said := ""
	return func(claim *v1alpha1.SandboxClaim) {
		if text := words(claim); text != said && text != "" {
			said = text
			o.say("sandboxclaim %s/%s: %s", claim.Namespace, claim.Name, text)
		}
	}
}

// tellLeft says what is left behind. claim is nil if it is not known to be stored.
func (o *claimOptions) tellLeft(order, claim *v1alpha1.SandboxClaim) {
	name := order.Namespace + "/" + order.Name
	flags := o.elsewhere()
	switch {
	case claim == nil:
		o.say("sandboxclaim %s is not there, but it may be if its create was on its way: kubectl get sandboxclaim %s%s", name, order.Name, flags)
	case stateOf(claim) == stateWaiting:
		o.say("sandboxclaim %s has %s sandboxes and continues claiming: kubectl delete sandboxclaim %s%s ends it", name, progress(claim), order.Name, flags)
	default:
		o.say("sandboxclaim %s keeps its sandboxes: %s release %s --all%s gives them back", name, o.program, order.Name, flags)
	}
}

// removeTimeout is how long the deletion of a claim may take.
const removeTimeout = 30 * time.Second

// remove deletes the claim that was made of an order, with which its sandboxes go. Another
// one that has its name by now is left alone. claim is nil if it is not known to be stored:
// then it is the one with the key.
func (o *claimOptions) remove(ctx context.Context, agents typed.AgentsV1alpha1Interface, order, claim *v1alpha1.SandboxClaim, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout) // ctx may be over
	defer cancel()
	claims, err := agents.SandboxClaims(order.Namespace), error(nil)
	if claim == nil {
		claim, err = claims.Get(ctx, order.Name, metav1.GetOptions{})
		if err == nil && claim.Annotations[client.AnnotationKey] != key {
			return nil
		}
	}
	if err == nil {
		err = claims.Delete(ctx, order.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))})
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("sandboxclaim %s and its sandboxes are left behind: %w", order.Name, err)
	}
	if !o.remote.quiet {
		o.say("sandboxclaim %s deleted, with its sandboxes", order.Name)
	}
	return nil
}
