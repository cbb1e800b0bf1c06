// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// completeLimit is how many names of a kind are offered.
const completeLimit = 500

// completion offers words for an argument. One that cannot ask the server offers none.
type completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// first offers words for the first argument, and none for others.
func (c *connection) first(words completion) completion {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(cmd, args, toComplete)
	}
}

// ask asks a server for names that begin with prefix, less those that are on the command
// line already.
func (c *connection) ask(cmd *cobra.Command, but []string, prefix string, names func(context.Context, *session, metav1.ListOptions) []string) ([]string, cobra.ShellCompDirective) {
	s, err := c.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // cobra completes without one
	}
	offered := slices.DeleteFunc(names(ctx, s, metav1.ListOptions{Limit: completeLimit}), func(name string) bool {
		return slices.Contains(but, name) || !strings.HasPrefix(name, prefix)
	})
	return offered, cobra.ShellCompDirectiveNoFileComp
}

func (c *connection) completeNamespaces(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return c.ask(cmd, nil, toComplete, func(ctx context.Context, s *session, options metav1.ListOptions) (names []string) {
		if list, err := s.kube.CoreV1().Namespaces().List(ctx, options); err == nil {
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	})
}

func (c *connection) completePools(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return c.ask(cmd, args, toComplete, func(ctx context.Context, s *session, options metav1.ListOptions) (names []string) {
		if list, err := s.agents.SandboxSets(s.namespace).List(ctx, options); err == nil {
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	})
}

// completeHoldings offers claims that have a sandbox, and the sandboxes as sbx/NAME.
func (c *connection) completeHoldings(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return c.ask(cmd, args, toComplete, func(ctx context.Context, s *session, options metav1.ListOptions) (names []string) {
		for _, claim := range s.claimsFor(ctx, options) {
			if len(claim.Status.Sandboxes) == 1 {
				names = append(names, claim.Name)
			}
			for _, name := range namesOf(&claim) {
				names = append(names, "sbx/"+name)
			}
		}
		return names
	})
}

// completeReleased offers claims that can be released, and then the sandboxes of the claim.
func (c *connection) completeReleased(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return c.ask(cmd, args, toComplete, func(ctx context.Context, s *session, options metav1.ListOptions) (names []string) {
		if len(args) > 0 {
			claim, err := s.agents.SandboxClaims(s.namespace).Get(ctx, args[0], metav1.GetOptions{})
			if err != nil {
				return nil
			}
			return namesOf(claim)
		}
		for _, claim := range s.claimsFor(ctx, options) {
			if claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted && len(claim.Status.Sandboxes) > 0 {
				names = append(names, claim.Name)
			}
		}
		return names
	})
}

// claimsFor lists claims for a completion.
func (s *session) claimsFor(ctx context.Context, options metav1.ListOptions) []v1alpha1.SandboxClaim {
	list, err := s.agents.SandboxClaims(s.namespace).List(ctx, options)
	if err != nil {
		return nil
	}
	return list.Items
}

// namesOf are the sandboxes of a claim, as many as are offered.
func namesOf(claim *v1alpha1.SandboxClaim) (names []string) {
	sandboxes := claim.Status.Sandboxes
	for i := range min(len(sandboxes), completeLimit) {
		names = append(names, sandboxes[i].Name)
	}
	return names
}

// completeKeys offers the ids of API keys.
func (o *e2bKeyOptions) completeKeys(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return o.ask(cmd, args, toComplete, func(ctx context.Context, s *session, _ metav1.ListOptions) (ids []string) {
		records, err := keysOf(s, o.keysNamespace).List(ctx, s.namespace)
		if err != nil {
			return nil
		}
		for _, record := range records[:min(len(records), completeLimit)] {
			ids = append(ids, record.ID)
		}
		return ids
	})
}
