// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

// e2bKeyOptions are what the command line says about API keys of the E2B API.
type e2bKeyOptions struct {
	*connection
	keysNamespace string
}

func newE2BKeyCommand(c *connection) *cobra.Command {
	o := &e2bKeyOptions{connection: c}
	command := &cobra.Command{
		Use:   "e2b-key",
		Short: "Make, list and revoke API keys of the E2B API",
		Long: "Make, list and revoke API keys with which the SDKs of E2B reach sandlot-gateway. A key\n" +
			"belongs to a team, and a team is a namespace: the one of -n. Keys are kept as Secrets in a\n" +
			"namespace of their own (--keys-namespace), so these commands are for those who may get,\n" +
			"list, create and delete Secrets there: that is a right over the sandboxes of all teams.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.PersistentFlags().StringVar(&o.keysNamespace, "keys-namespace", apikeys.DefaultNamespace, "The namespace of the Secrets of keys.")
	command.AddCommand(newE2BKeyCreateCommand(o), newE2BKeyListCommand(o), newE2BKeyRevokeCommand(o))
	return command
}

// keysOf are the keys in a namespace on the server of a session, each of which is read when it is asked for.
func keysOf(s *session, namespace string) *apikeys.Keys {
	return apikeys.New(apikeys.NewSecrets(s.kube.CoreV1(), namespace, clock.RealClock{}))
}
