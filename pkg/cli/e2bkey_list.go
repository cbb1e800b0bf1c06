// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

// e2bKeyListOptions are what the command line says about a list of keys.
type e2bKeyListOptions struct {
	*e2bKeyOptions
	noHeaders bool
}

func newE2BKeyListCommand(all *e2bKeyOptions) *cobra.Command {
	o := &e2bKeyListOptions{e2bKeyOptions: all}
	command := &cobra.Command{
		Use:   "list",
		Short: "List the API keys of a team",
		Long: "List the API keys of the team whose namespace is that of -n. BY is the id of the key that\n" +
			"made the key, " + none + " for an administrator. The keys themselves are kept nowhere.",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	command.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print the table without its headers.")
	return command
}

func (o *e2bKeyListOptions) run(ctx context.Context) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	records, err := keysOf(s, o.keysNamespace).List(ctx, s.namespace)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		o.say("team %s has no API keys", s.namespace)
		return nil
	}
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders}).PrintObj(keyTable(records), o.Out)
}

// keyTable is keys for people.
func keyTable(records []apikeys.Record) *metav1.Table {
	columns := []column{{name: "ID"}, {name: "Name"}, {name: "Created"}, {name: "By"}}
	var rows [][]string
	for _, record := range records {
		rows = append(rows, []string{record.ID, record.Name, record.CreatedAt.UTC().Format(time.RFC3339), record.CreatedBy})
	}
	return newTable(columns, rows)
}
