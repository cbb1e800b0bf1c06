// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/metadata"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// clearScreen is what a terminal takes for a clear screen.
const clearScreen = "\x1b[H\x1b[2J"

// minInterval is the shortest time between two looks, each of which lists everything.
const minInterval = time.Second

// topOptions are what the command line says about a look at pools.
type topOptions struct {
	*connection
	out           *output
	pools         []string
	allNamespaces bool
	watch         bool
	interval      time.Duration
}

func newTopCommand(c *connection) *cobra.Command {
	o := &topOptions{connection: c, interval: 5 * time.Second}
	command := &cobra.Command{
		Use:   "top [POOL...]",
		Short: "Show how pools stand, and why they cannot start sandboxes",
		Long: "Show pools: how many unused sandboxes each is to have, how many of them are available and\n" +
			"how many are starting, how many claims wait and how many there are, how many sandboxes are\n" +
			"claimed, and what keeps the pool from having sandboxes.",
		Example: "  # Look at the pools every five seconds\n" +
			"  %[1]s top --watch",
		ValidArgsFunction: c.completePools,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.interval < minInterval {
				return fmt.Errorf("--interval %s is shorter than %s", o.interval, minInterval)
			}
			o.pools = args
			return o.run(cmd.Context())
		},
	}
	c.nameProgram(command)
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Show the pools of all namespaces.")
	flags.BoolVarP(&o.watch, "watch", "w", false, "Refresh the output until the program is interrupted.")
	flags.DurationVar(&o.interval, "interval", o.interval, "With --watch, the time between refreshes. At least 1s.")
	o.out = newOutput(command, c.Out, "")
	return command
}

func (o *topOptions) run(ctx context.Context) error {
	if _, err := o.out.printer(); err != nil {
		return err
	}
	s, err := o.open()
	if err != nil {
		return err
	}
	if o.allNamespaces {
		s.namespace = metav1.NamespaceAll
	}
	if !o.watch {
		return o.look(ctx, s)
	}
	screen := printers.IsTerminal(o.Out)
	err = wait.PollUntilContextCancel(ctx, o.interval, true, func(ctx context.Context) (bool, error) {
		if screen {
			_, _ = fmt.Fprint(o.Out, clearScreen) // what follows fails as well
		}
		err := o.look(ctx, s)
		if !screen && err == nil {
			_, err = fmt.Fprintln(o.Out)
		}
		return false, err
	})
	if ctx.Err() == nil {
		return err
	}
	return nil // that is how a watch ends
}

// look prints the pools once.
func (o *topOptions) look(ctx context.Context, s *session) error {
	printer, err := o.out.printer() // each look has headers
	if err != nil {
		return err
	}
	sets, err := listed[*v1alpha1.SandboxSet](ctx, "", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.agents.SandboxSets(s.namespace).List(ctx, options)
	})
	if err != nil {
		return err
	}
	if sets, err = chosen(sets, o.pools); err != nil {
		return err
	}
	if !o.out.table() {
		return printAll(o.out, printer, sets)
	}
	if len(sets) == 0 {
		o.say("there are no pools%s", where(s.namespace))
		return nil
	}
	claims, err := s.claims(ctx, "")
	if err != nil {
		return err
	}
	claimed, err := s.claimedByPool(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	return printer.PrintObj(poolTable(poolsOf(sets, claims, claimed), err == nil, o.allNamespaces), o.Out)
}

// chosen leaves the sets that the command line names, which have to be there.
func chosen(sets []*v1alpha1.SandboxSet, names []string) ([]*v1alpha1.SandboxSet, error) {
	if len(names) == 0 {
		return sets, nil
	}
	var errs []error
	for _, name := range names {
		if !slices.ContainsFunc(sets, func(set *v1alpha1.SandboxSet) bool { return set.Name == name }) {
			errs = append(errs, fmt.Errorf("sandboxset %q not found", name))
		}
	}
	sets = slices.DeleteFunc(sets, func(set *v1alpha1.SandboxSet) bool { return !slices.Contains(names, set.Name) })
	return sets, errors.Join(errs...)
}

// claimedByPool counts claimed sandboxes by the set that made them. Their metadata is
// enough for that: it has no tokens on its way that need not be there, and is small.
func (s *session) claimedByPool(ctx context.Context) (map[types.NamespacedName]int, error) {
	client, err := metadata.NewForConfig(s.config)
	if err != nil {
		return nil, fmt.Errorf("client of the server: %w", err)
	}
	sandboxes := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("sandboxes")).Namespace(s.namespace)
	selector := labels.Set{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue}.String()
	found, err := listed[*metav1.PartialObjectMetadata](ctx, selector, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return sandboxes.List(ctx, options)
	})
	if err != nil {
		return nil, err
	}
	counts := map[types.NamespacedName]int{}
	for _, sandbox := range found {
		counts[types.NamespacedName{Namespace: sandbox.Namespace, Name: sandbox.Labels[v1alpha1.LabelSandboxPool]}]++
	}
	return counts, nil
}
