// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

func newE2BKeyRevokeCommand(o *e2bKeyOptions) *cobra.Command {
	command := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API key, with those that were made with it",
		Long: "Revoke an API key of the team whose namespace is that of -n, with all keys that were made\n" +
			"with it, and with those, through the E2B API. Every replica of sandlot-gateway refuses them\n" +
			"from then on. Sandboxes stay.",
		Example:           "  %[1]s e2b-key revoke -n team-a 4f0c1d2e3b5a6978",
		ValidArgsFunction: o.first(o.completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			// What was given is not repeated: it may be a key.
			if len(args) != 1 || !apikeys.IsID(args[0]) {
				return errors.New("revoke takes the id of an API key: 16 digits of 0 to 9 and a to f, as list shows it and as the key has behind e2b_")
			}
			return revokeKey(cmd.Context(), o, args[0])
		},
	}
	o.nameProgram(command)
	return command
}

func revokeKey(ctx context.Context, o *e2bKeyOptions, id string) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	gone, err := keysOf(s, o.keysNamespace).Revoke(ctx, s.namespace, id)
	if errors.Is(err, apikeys.ErrNotFound) {
		return fmt.Errorf("team %s has no API key %s", s.namespace, id)
	}
	for _, record := range gone {
		if _, printErr := fmt.Fprintf(o.Out, "e2b-key/%s revoked\n", record.ID); printErr != nil {
			err = errors.Join(err, printErr)
		}
	}
	if err != nil {
		return fmt.Errorf("%d API keys of team %s were revoked, and others may be left (revoke %s again): %w", len(gone), s.namespace, id, err)
	}
	o.say("%d API keys of team %s were revoked: %s and what was made with it", len(gone), s.namespace, id)
	return nil
}
