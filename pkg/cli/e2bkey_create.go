// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

// e2bKeyCreateOptions are what the command line says about a new key.
type e2bKeyCreateOptions struct {
	*e2bKeyOptions
	name string
}

func newE2BKeyCreateCommand(all *e2bKeyOptions) *cobra.Command {
	o := &e2bKeyCreateOptions{e2bKeyOptions: all}
	command := &cobra.Command{
		Use:   "create --name NAME",
		Short: "Make an API key of a team, and print it",
		Long: "Make an API key of the team whose namespace is that of -n, and print it, alone, on stdout.\n" +
			"It is kept nowhere, so it is seen this once.",
		Example: "  # A key for team-a, in the variable that the SDKs of E2B read\n" +
			"  export E2B_API_KEY=$(%[1]s e2b-key create -n team-a --name ci)",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.name) == 0 || len(o.name) > apikeys.MaxName {
				return fmt.Errorf("say with --name, in at most %d bytes, what the key is for", apikeys.MaxName)
			}
			return o.run(cmd.Context())
		},
	}
	o.nameProgram(command)
	command.Flags().StringVar(&o.name, "name", "", "Name of the key in lists.")
	return command
}

func (o *e2bKeyCreateOptions) run(ctx context.Context) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	if err := s.checkTeam(ctx); err != nil {
		return err
	}
	record, text, err := keysOf(s, o.keysNamespace).Issue(ctx, apikeys.Request{Team: s.namespace, Name: o.name})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: API keys are kept in namespace %s, which an install of sandlot-gateway makes (--keys-namespace is another one)", err, o.keysNamespace)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(o.Out, text); err != nil {
		return fmt.Errorf("printing API key %s, which is of no use then (revoke it): %w", record.ID, err)
	}
	o.say("API key %s (%s) of team %s. It is not shown again.", record.ID, record.Name, record.Team)
	return nil
}

// checkTeam refuses a namespace in which a key would be of no use.
func (s *session) checkTeam(ctx context.Context) error {
	if len(s.namespace) > v1alpha1.MaxE2BNamespace {
		return fmt.Errorf("namespace %s cannot be that of a team: it has %d characters, and %d is the most that leaves room for the host names of sandboxes",
			s.namespace, len(s.namespace), v1alpha1.MaxE2BNamespace)
	}
	_, err := s.kube.CoreV1().ServiceAccounts(s.namespace).Get(ctx, v1alpha1.E2BServiceAccount, metav1.GetOptions{})
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err):
		return errors.New("this server has neither ServiceAccounts nor Secrets: e2b-key is for clusters")
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %[1]s has no ServiceAccount %[2]s, as which sandlot-gateway acts for the team: apply the component e2b-team to it "+
			"(kubectl apply -k of a kustomization that says namespace: %[1]s and has artifacts/deploy/components/e2b-team among its components)",
			s.namespace, v1alpha1.E2BServiceAccount)
	}
	return err
}
